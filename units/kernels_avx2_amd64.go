//go:build amd64 && !purego

package units

var avx2Kernels = kernels{
	name:    "avx2",
	panel:   panelVector256,
	absMax:  absMaxVector,
	split2:  split2Vector,
	split3:  split3Vector,
	combine: combineVector,

	moments:    momentsVector,
	normalise:  normaliseVector,
	act:        actVector,
	scores:     scoresVector,
	highest:    highestGeneric,
	weigh:      weighVector,
	accumulate: accumulateGeneric,

	sum: sumVector,
}

//go:noescape
func panelAVX2(dst, init *int32, w *uint8, a *int8, stride, groups int)

// panelVector256 takes two limb rows at a time, all that 16 registers hold.
func panelVector256(dst, init []int32, w []uint8, a []int8, tile, groups int) {
	checkPanel(dst, init, w, a, tile, groups)
	for t := 0; t < tile; t += 2 {
		panelAVX2(&dst[t*panelRows], &init[t], &w[0], &a[t*groupK], tile*groupK, groups)
	}
}
