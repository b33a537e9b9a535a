package units

import "math"

// genericKernels is the reference: plain Go, built on every platform.
var genericKernels = kernels{
	name:    "generic",
	panel:   panelGeneric,
	absMax:  absMaxGeneric,
	split2:  split2Generic,
	split3:  split3Generic,
	combine: combineGeneric,

	moments:    momentsGeneric,
	normalise:  normaliseGeneric,
	act:        actGeneric,
	scores:     scoresGeneric,
	highest:    highestGeneric,
	weigh:      weighGeneric,
	accumulate: accumulateGeneric,

	sum: sumGeneric,
}

// pairBlock is the number of groups whose activations panelGeneric holds in paired form.
const pairBlock = 64

// panelGeneric takes two limb rows at a time: x = a[t]*2^32 + a[t+1] times a weight sums both in one 64-bit integer,
// from which the two sums are recovered exactly since the lower one, its offset removed, fits in 32 bits.
func panelGeneric(dst, init []int32, w []uint8, a []int8, tile, groups int) {
	var x [pairBlock * groupK]int64
	for t := 0; t < tile; t += 2 {
		var acc [panelRows]int64
		all := int64(0) // of x
		for g0 := 0; g0 < groups; g0 += pairBlock {
			n := min(pairBlock, groups-g0)
			total := int64(0)
			for g := range n {
				p := (*[2 * groupK]int8)(a[((g0+g)*tile+t)*groupK:])
				q := (*[groupK]int64)(x[g*groupK:])
				q[0], q[1] = int64(p[0])<<32+int64(p[4]), int64(p[1])<<32+int64(p[5])
				q[2], q[3] = int64(p[2])<<32+int64(p[6]), int64(p[3])<<32+int64(p[7])
				total += q[0] + q[1] + q[2] + q[3]
			}
			all += total
			// The weights carry +128; taking it out here keeps the lower sum within 32 bits.
			total *= -128
			for r := 0; r < panelRows; r += 4 {
				panelQuarter(acc[r:r+4], x[:n*groupK], w[g0*panelRows*groupK+r*groupK:], total)
			}
		}
		// What is taken out is put back.
		all0, all1 := unpair(all)
		for n, v := range acc {
			sum0, sum1 := unpair(v)
			dst[t*panelRows+n] = init[t] + sum0 + all0<<7
			dst[(t+1)*panelRows+n] = init[t+1] + sum1 + all1<<7
		}
	}
}

// unpair gives the sums of both limb rows.
func unpair(v int64) (first, second int32) {
	second = int32(v)
	return int32((v - int64(second)) >> 32), second
}

// panelQuarter adds four rows of a panel; w starts at the first row and continues every 64 bytes.
func panelQuarter(acc []int64, x []int64, w []uint8, offset int64) {
	a0, a1, a2, a3 := acc[0]+offset, acc[1]+offset, acc[2]+offset, acc[3]+offset
	for g := 0; g+groupK <= len(x); g += groupK {
		x0, x1, x2, x3 := x[g], x[g+1], x[g+2], x[g+3]
		b := w[g*panelRows:][:16]
		a0 += x0*int64(b[0]) + x1*int64(b[1]) + x2*int64(b[2]) + x3*int64(b[3])
		a1 += x0*int64(b[4]) + x1*int64(b[5]) + x2*int64(b[6]) + x3*int64(b[7])
		a2 += x0*int64(b[8]) + x1*int64(b[9]) + x2*int64(b[10]) + x3*int64(b[11])
		a3 += x0*int64(b[12]) + x1*int64(b[13]) + x2*int64(b[14]) + x3*int64(b[15])
	}
	acc[0], acc[1], acc[2], acc[3] = a0, a1, a2, a3
}

func absMaxGeneric(x []float32) uint32 {
	top := uint32(0)
	for _, v := range x {
		top = max(top, math.Float32bits(v)&absBits)
	}
	return top
}

func split2Generic(hi, lo []int8, x []float32, scale float32) (largest, sum uint32, sumHi, sumLo int32) {
	hi, lo = hi[:len(x)], lo[:len(x)]
	for i, v := range x {
		q := round(v * scale)
		a := uint32(max(q, -q)) >> 1
		largest = max(largest, a)
		sum += a
		hi[i], lo[i] = limbs2(q)
		sumHi += int32(hi[i])
		sumLo += int32(lo[i])
	}
	return
}

func split3Generic(h2, h1, h0 []int8, x []float32, scale float32) (sums [3]int32) {
	h2, h1, h0 = h2[:len(x)], h1[:len(x)], h0[:len(x)]
	for i, v := range x {
		q := min(max(round(v*scale), -maxThree), maxThree)
		h2[i], h1[i], h0[i] = limbs3(q)
		sums[0] += int32(h2[i])
		sums[1] += int32(h1[i])
		sums[2] += int32(h0[i])
	}
	return
}

func combineGeneric(dst []float32, stride int, u, u2 []int32, rows []quantised, scale, bias []float32) {
	at := 0
	for r := range rows {
		q, p := &rows[r], pow2(rows[r].exp)
		y := dst[r*stride:][:len(scale)]
		for n, s := range scale {
			t := joinLimbs(u[at:], q.limbs, n)
			if u2 != nil {
				t = float32(t*256) + joinLimbs(u2[at:], q.limbs, n)
			}
			v := float32(float32(t*p) * s)
			if bias != nil {
				v += bias[n]
			}
			y[n] = flush(v)
		}
		at += q.limbs * panelRows
	}
}

// joinLimbs is T(b) of section 4 for output n of a panel.
func joinLimbs(u []int32, limbs, n int) float32 {
	t := float32(float32(u[n])*256) + float32(u[panelRows+n])
	if limbs == 3 {
		t = float32(t*256) + float32(u[2*panelRows+n])
	}
	return t
}

func sumGeneric(x []uint64) uint64 {
	var a, b, c, d uint64
	for len(x) >= 8 {
		a += x[0] + x[4]
		b += x[1] + x[5]
		c += x[2] + x[6]
		d += x[3] + x[7]
		x = x[8:]
	}
	for _, v := range x {
		a += v
	}
	return a + b + c + d
}
