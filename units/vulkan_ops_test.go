package units

import "testing"

// TestVulkanAttendPasses tries every way of sharing attention out, which sizes would choose otherwise: whole rows or
// tiles, one part of the context or several, all rows or a few at a time.
func TestVulkanAttendPasses(t *testing.T) {
	shapes := []GateShapes{
		{Heads: 6, KVHeads: 2, HeadDim: 16, Context: 400, Cap: 5, ALiBi: true},
		{Heads: 9, KVHeads: 1, HeadDim: 72, Context: 1200},
	}
	for _, c := range []struct {
		name        string
		rows        int // of the short way
		groups      int
		scratchRows int64
	}{
		{"short", 1 << 16, 1, 1 << 16}, {"short, a few rows at a time", 1 << 16, 1, 3},
		{"tiles", 0, 1, 1 << 16}, {"tiles and parts", 0, 1 << 16, 1 << 16}, {"tiles and parts of a few rows", 0, 1 << 16, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := vulkanTest(t, VulkanOptions{})
			oldRows, oldScratch, oldGroups := shortRows, attendScratch, attendGroups
			defer func() { shortRows, attendScratch, attendGroups = oldRows, oldScratch, oldGroups }()
			for _, s := range shapes {
				perRow := 4 * s.Heads * padded(s.Context, blockPositions)
				shortRows, attendScratch, attendGroups = c.rows, int64(perRow)*c.scratchRows, c.groups
				if _, err := Gate(d, s); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// TestVulkanGateOps gates every operation but the linear ones, which have a test of their own.
func TestVulkanGateOps(t *testing.T) {
	vulkanTiersTest(t, func(t *testing.T, d *vulkanDevice) {
		s := gateShapes
		s.Linears = nil
		s.Norms, s.Acts = []int{96, 5000}, []int{300}
		if _, err := Gate(d, s); err != nil {
			t.Fatal(err)
		}
	})
}
