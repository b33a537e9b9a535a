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

func highestVector(best, x []float32) {
	for i := range best {
		best[i] = max(best[i], highestX8(&x[i*blockPositions:][:blockPositions][0], blockPositions/8))
	}
}

func accumulateVector(total []int64, stride int, u, low []unitSums, parts []blockWeights, tops []int32) {
	for i := range parts {
		part := &parts[i]
		n := part.shift(tops[i])
		if n < leastShift {
			continue
		}
		if part.sum != 0 {
			panic("units: accumulate of unit sums with an offset")
		}
		for p := range u {
			to := total[i*stride+p*panelRows:][:panelRows]
			hi, lo := u[p][0][2*i*panelRows:][:2*panelRows], u[p][1][2*i*panelRows:][:2*panelRows]
			if part.limbs == 2 {
				accumulateX16(&to[0], &hi[0], &lo[0], 2, n)
				continue
			}
			var three [2][3 * panelRows]int32
			copy(three[0][copy(three[0][:], hi):], low[p][0][i*panelRows:])
			copy(three[1][copy(three[1][:], lo):], low[p][1][i*panelRows:])
			accumulateX16(&to[0], &three[0][0], &three[1][0], 3, n)
		}
	}
}
