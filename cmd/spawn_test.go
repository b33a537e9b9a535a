package cmd

import (
	"strings"
	"testing"

	"dchain/plan"
)

// Stages of --spawn take the GPUs by turns, after the head if that has layers, and gate those that the head has not.
func TestSpawnDevices(t *testing.T) {
	first := []plan.Range{{First: 0, Last: 1}, {First: 2, Last: 3}, {First: 4, Last: 5}}
	later := []plan.Range{{First: 2, Last: 3}, {First: 4, Last: 5}, {First: 6, Last: 7}}
	gated, own := "--gated-kernels vulkan-dp4a", "--backend vulkan-dp4a"
	for _, c := range []struct {
		devices []int
		ranges  []plan.Range
		want    []string
	}{
		{nil, first, []string{gated, gated, gated}},
		{[]int{1}, later, []string{"--device 1 " + gated, "--device 1 " + gated, "--device 1 " + gated}},
		{[]int{0, 2}, first, []string{"--device 0 " + gated, "--device 2 " + own, "--device 0 " + gated}},
		{[]int{2, 0}, later, []string{"--device 0 " + own, "--device 2 " + gated, "--device 0 " + own}},
	} {
		o := spawnOptions{kernels: "vulkan-dp4a", devices: c.devices, ranges: c.ranges}
		for i, want := range c.want {
			if got := strings.Join(o.backendArgs(i), " "); got != want {
				t.Errorf("devices %v, layers %v, stage %d: %s, want %s", c.devices, c.ranges, i+1, got, want)
			}
		}
	}
}
