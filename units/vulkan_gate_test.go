package units

import (
	"os"
	"strings"
	"testing"

	"dchain/units/vk/vktest"
)

// vulkanTest opens the first Vulkan device, without a pipeline cache.
func vulkanTest(tb testing.TB, o VulkanOptions) *vulkanDevice {
	tb.Helper()
	o.CacheDir = "-"
	d, err := NewVulkan(o)
	vktest.Need(tb, err)
	tb.Cleanup(func() {
		if err := d.Close(); err != nil {
			tb.Error(err)
		}
	})
	v := d.(*vulkanDevice)
	// Layers that look for missing barriers know nothing of dispatches that await each other in their shaders.
	v.unchained.Store(strings.Contains(os.Getenv("VK_LAYER_ENABLES"), "SYNCHRONIZATION"))
	return v
}

// vulkanTiersTest calls f with a device of every tier.
func vulkanTiersTest(t *testing.T, f func(t *testing.T, d *vulkanDevice)) {
	for _, tier := range VulkanTiers(vulkanTest(t, VulkanOptions{}).info) {
		t.Run(string(tier), func(t *testing.T) { f(t, vulkanTest(t, VulkanOptions{Tier: tier})) })
	}
}

// TestVulkanClose: a gate leaves nothing on the device.
func TestVulkanClose(t *testing.T) {
	d := vulkanTest(t, VulkanOptions{})
	before := len(d.buffers)
	if _, err := Gate(t.Context(), d, GateShapes{Linears: []LinearShape{{N: 40, K: 70}}, Norms: []int{70}, Heads: 2, KVHeads: 1, HeadDim: 16, RotaryDim: 16, Context: 100}); err != nil {
		t.Fatal(err)
	}
	if len(d.buffers) != before || len(d.runs) != 0 {
		t.Errorf("%d buffers and %d programs are left", len(d.buffers)-before, len(d.runs))
	}
}

func TestVulkanGate(t *testing.T) {
	vulkanTiersTest(t, func(t *testing.T, d *vulkanDevice) {
		r, err := Gate(t.Context(), d, GateShapes{Linears: gateShapes.Linears})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%d checks in %v", len(r.Checks), r.Took)
	})
}

// TestVulkanShapes tries the shapes of linear shaders that GPUs are given, whatever the device.
func TestVulkanShapes(t *testing.T) {
	d := vulkanTest(t, VulkanOptions{})
	d.plain, d.fewRows, d.steps = false, 4, []int{33}
	if _, err := Gate(t.Context(), d, GateShapes{Linears: []LinearShape{{70, 600, Int8}, {37, 70, Int8x2}}}); err != nil {
		t.Fatal(err)
	}
}

// TestVulkanMatrices tries linear operations on matrices, by dot products, with the inputs shared out and not, and the norms and
// heads that take their outputs.
func TestVulkanMatrices(t *testing.T) {
	old := matrixPlans
	defer func() { matrixPlans = old }()
	matrixPlans = []matrixPlan{
		{40, linearTile{1, 2, 2, 1, 4}, linearTile{1, 1, 2, 2, 2}, 20, 1},
		{maxVulkanRows, linearTile{2, 1, 1, 1, 4}, linearTile{2, 1, 1, 2, 2}, 20, 2},
	}
	d := vulkanTest(t, VulkanOptions{})
	d.tiled = true
	d.useMatrices()
	d.steps = []int{41} // several tiles of rows
	if _, err := Gate(t.Context(), d, GateShapes{Linears: []LinearShape{{150, 300, Int8x2}}, Norms: []int{150}, Heads: 6, KVHeads: 2, HeadDim: 20, RotaryDim: 12, Context: 20}); err != nil {
		t.Fatal(err)
	}
}
