//go:build amd64 && !purego

package units

import "golang.org/x/sys/cpu"

// archKernels lists the assembly tables this processor can run, best first.
func archKernels() []*kernels {
	var sets []*kernels
	x := &cpu.X86
	if x.HasAVX2 && x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL && x.HasAVX512VNNI {
		sets = append(sets, &avx512Kernels)
	}
	if x.HasAVX2 {
		sets = append(sets, &avx2Kernels)
	}
	return sets
}

// checkPanel panics where the slices are too short for a panel of this shape.
func checkPanel(dst, init []int32, w []uint8, a []int8, tile, groups int) {
	if groups < 4 || groups%4 != 0 {
		panic("units: panel of a width that is not padded")
	}
	_, _, _, _ = dst[tile*panelRows-1], init[tile-1], w[groups*panelRows*groupK-1], a[groups*tile*groupK-1]
}
