package units_test

import (
	"fmt"
	"testing"

	"dchain/units"
	"dchain/units/unitstest"
)

// TestDevice holds the CPU device to the contract with every kernel table of this processor and one to four threads.
func TestDevice(t *testing.T) {
	for _, c := range []struct {
		kernels string
		threads []int
	}{{"generic", []int{1, 2}}, {"avx2", []int{1, 4}}, {"avxvnni", []int{1, 3}}, {"neon", []int{1}}, {"sdot", []int{2}},
		{"avx512vnni", []int{1, 4}}, {"amx", []int{1, 2, 3, 4}}} {
		for _, threads := range c.threads {
			t.Run(fmt.Sprintf("%s/%d", c.kernels, threads), func(t *testing.T) {
				t.Setenv("DCHAIN_CPU", c.kernels)
				open := func() (units.Device, error) { return units.NewCPU(units.CPUOptions{Threads: threads}) }
				d, err := open()
				if err != nil {
					t.Skipf("this processor has no such kernels: %v", err)
				}
				d.Close()
				unitstest.Run(t, func() units.Device {
					d, err := open()
					if err != nil {
						t.Fatal(err)
					}
					return d
				})
			})
		}
	}
}
