package units

import "testing"

// TestVulkanRowSteps gates products of one row that take several steps, the last of which is cut short, as they run on devices
// that are no software renderers.
func TestVulkanRowSteps(t *testing.T) {
	d := vulkanTest(t, VulkanOptions{Tier: VulkanDP4A})
	d.plain = false
	each := 16 * d.info.Subgroup // values that a subgroup loads at a time
	for _, l := range []LinearShape{{N: 70, K: 13*each + 70, Mode: Int8}, {N: 70, K: 6*each + 70, Mode: Int8x2}} {
		if _, err := Gate(t.Context(), d, GateShapes{Linears: []LinearShape{l}}); err != nil {
			t.Errorf("%+v: %v", l, err)
		}
	}
}
