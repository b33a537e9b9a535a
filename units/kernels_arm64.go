//go:build arm64 && !purego

package units

import "golang.org/x/sys/cpu"

// neonKernels is for any arm64 processor, sdotKernels for those with the dot product (Armv8.2 and later, most of them).
var (
	neonKernels = kernels{
		name:    "neon",
		panel:   panelPairs,
		absMax:  absMaxVector,
		split2:  split2Vector,
		split3:  split3Vector,
		combine: combineVector,

		moments:    momentsVector,
		normalise:  normaliseVector,
		act:        actVector,
		scores:     scoresVector,
		highest:    highestVector,
		weigh:      weighVector,
		accumulate: accumulateVector,

		sum: sumVector,
	}
	sdotKernels = sdotSet()
)

func sdotSet() kernels {
	k := neonKernels
	k.name, k.panel = "sdot", panelSDOT
	return k
}

// archKernels lists the assembly tables this processor can run, best first.
func archKernels() []*kernels {
	if cpu.ARM64.HasASIMDDP {
		return []*kernels{&sdotKernels, &neonKernels}
	}
	return []*kernels{&neonKernels}
}

//go:noescape
func panelNEON(dst, init *int32, w *uint8, a *int8, stride, groups int)

//go:noescape
func panelSDOT2(dst, init *int32, w *uint8, a *int8, groups int)

//go:noescape
func panelSDOT4(dst, init *int32, w *uint8, a *int8, groups int)

//go:noescape
func panelSDOT8(dst, init *int32, w *uint8, a *int8, stride, groups int)

//go:noescape
func highestX8(x *float32, blocks int) float32

//go:noescape
func accumulateX16(total *int64, u, u2 *int32, limbs, n int)

// panelPairs takes two limb rows at a time, all that 32 registers hold.
func panelPairs(dst, init []int32, w []uint8, a []int8, tile, groups int) {
	checkPanel(dst, init, w, a, tile, groups)
	for t := 0; t < tile; t += 2 {
		panelNEON(&dst[t*panelRows], &init[t], &w[0], &a[t*groupK], tile*groupK, groups)
	}
}

func panelSDOT(dst, init []int32, w []uint8, a []int8, tile, groups int) {
	checkPanel(dst, init, w, a, tile, groups)
	switch tile {
	case 2:
		panelSDOT2(&dst[0], &init[0], &w[0], &a[0], groups)
	case 4:
		panelSDOT4(&dst[0], &init[0], &w[0], &a[0], groups)
	case 8, 16, 24:
		for t := 0; t < tile; t += 8 {
			for n := 0; n < panelRows; n += panelRows / 2 {
				panelSDOT8(&dst[t*panelRows+n], &init[t], &w[n*groupK], &a[t*groupK], tile*groupK, groups)
			}
		}
	default:
		panic("units: no panel kernel for this tile")
	}
}

func highestVector(x []float32) float32 {
	n := len(x) &^ 7
	m := x[0]
	if n < len(x) {
		m = highestGeneric(x[n:])
	}
	if n > 0 {
		m = max(m, highestX8(&x[0], n/8))
	}
	return m
}

func accumulateVector(total []int64, u, u2 []int32, limbs, n int) {
	_, _, _ = total[panelRows-1], u[limbs*panelRows-1], u2[limbs*panelRows-1]
	if limbs < 2 || limbs > 3 || n < -62 || n > 63 {
		panic("units: accumulate of a shape that is no block")
	}
	accumulateX16(&total[0], &u[0], &u2[0], limbs, n)
}
