// Package vktest is what tests that need a Vulkan device begin with.
package vktest

import (
	"errors"
	"os"
	"testing"

	"dchain/units/vk"
)

// CHECK_SHADERS, set to anything, has all shaders checked: see vk.Checked.
func init() { vk.Checked = os.Getenv("CHECK_SHADERS") != "" }

// Need skips the test where err says that there is no Vulkan, but not in CI, or where the program is built without. Any other error
// fails it.
func Need(tb testing.TB, err error) {
	tb.Helper()
	if !vk.Built || errors.Is(err, vk.ErrUnavailable) && os.Getenv("CI") != "true" {
		tb.Skip(err)
	}
	if err != nil {
		tb.Fatal(err)
	}
	if vk.Checked {
		tb.Log("shaders are checked")
	}
}

// Devices are the Vulkan devices, at least one.
func Devices(tb testing.TB) []vk.DeviceInfo {
	tb.Helper()
	devices, err := vk.List()
	Need(tb, err)
	return devices
}
