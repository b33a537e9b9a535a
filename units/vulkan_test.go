package units_test

import (
	"testing"

	"dchain/units"
	"dchain/units/unitstest"
	"dchain/units/vk/vktest"
)

// TestVulkan holds the first Vulkan device to the contract with each tier that it has.
func TestVulkan(t *testing.T) {
	devices := vktest.Devices(t)
	for _, tier := range units.VulkanTiers(&devices[0]) {
		t.Run(string(tier), func(t *testing.T) {
			if testing.Short() && tier == units.VulkanLUT {
				t.Skip("minutes of compiling on a software renderer")
			}
			unitstest.Run(t, func() units.Device {
				d, err := units.NewVulkan(units.VulkanOptions{Tier: tier, CacheDir: "-"})
				if err != nil {
					t.Fatal(err)
				}
				return d
			})
		})
	}
}
