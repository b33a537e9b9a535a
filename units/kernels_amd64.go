//go:build amd64 && !purego

package units

import "golang.org/x/sys/cpu"

// archKernels lists the assembly tables this processor can run, best first.
func archKernels() []*kernels {
	var sets []*kernels
	x := &cpu.X86
	if x.HasAVX2 && x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL && x.HasAVX512VNNI {
		if x.HasAMXTile && x.HasAMXInt8 && allowTiles() {
			sets = append(sets, &amxKernels)
		}
		sets = append(sets, &avx512Kernels)
	}
	if x.HasAVX2 && x.HasAVXVNNI {
		sets = append(sets, &avxVNNIKernels)
	}
	if x.HasAVX2 {
		sets = append(sets, &avx2Kernels)
	}
	return sets
}
