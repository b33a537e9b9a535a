//go:build amd64 && !purego

package units

// avxVNNIKernels is for processors that have the dot product but not AVX-512.
var avxVNNIKernels = avxVNNISet()

func avxVNNISet() kernels {
	k := avx2Kernels
	k.name, k.panel = "avxvnni", panelAVXVNNI
	return k
}

//go:noescape
func panelAVXVNNI2(dst, init *int32, w *uint8, a *int8, stride, groups int)

//go:noescape
func panelAVXVNNI4(dst, init *int32, w *uint8, a *int8, stride, groups int)

//go:noescape
func panelAVXVNNI6(dst, init *int32, w *uint8, a *int8, stride, groups int)

// panelAVXVNNI takes six limb rows at a time, all that 16 registers hold, then what is left: every tile is even.
func panelAVXVNNI(dst, init []int32, w []uint8, a []int8, tile, groups int) {
	checkPanel(dst, init, w, a, tile, groups)
	for t := 0; t < tile; {
		rows, f := 2, panelAVXVNNI2
		if tile-t >= 6 {
			rows, f = 6, panelAVXVNNI6
		} else if tile-t >= 4 {
			rows, f = 4, panelAVXVNNI4
		}
		f(&dst[t*panelRows], &init[t], &w[0], &a[t*groupK], tile*groupK, groups)
		t += rows
	}
}
