package units_test

import (
	"fmt"
	"testing"

	"dchain/units"
	"dchain/units/unitstest"
)

// TestDevice holds the CPU device to the contract with every kernel table of this processor and several thread counts.
func TestDevice(t *testing.T) {
	for _, kernels := range []string{"generic", "avx2", "avx512vnni"} {
		for threads := 1; threads <= 4; threads++ {
			t.Run(fmt.Sprintf("%s/%d", kernels, threads), func(t *testing.T) {
				t.Setenv("DCHAIN_CPU", kernels)
				d, err := units.NewCPU(units.CPUOptions{Threads: threads})
				if err != nil {
					t.Skipf("not on this processor: %v", err)
				}
				d.Close()
				unitstest.Run(t, func() units.Device {
					d, err := units.NewCPU(units.CPUOptions{Threads: threads})
					if err != nil {
						t.Fatal(err)
					}
					return d
				})
			})
		}
	}
}
