package units

import "math"

// The generic kernels of norms, activations and attention.

func momentsGeneric(x []float32, scale float32) (sum, squares int64) {
	for _, v := range x {
		g := int64(round(v * scale))
		sum += g
		squares += g * g
	}
	return
}

func normaliseGeneric(y, x []float32, r float32, w, b []float32) {
	y, w = y[:len(x)], w[:len(x)]
	for i, v := range x {
		n := float32(flush(v*r) * w[i])
		if b != nil {
			n += b[i]
		}
		y[i] = flush(n)
	}
}

// activations are the functions by ActKind.
var activations = [...]func(float32) float32{SiLU: silu, GELUTanh: geluTanh, GELU: gelu, ReLU: relu}

func actGeneric(kind ActKind, y, x, up []float32) {
	f := activations[kind]
	y = y[:len(x)]
	if up == nil {
		for i, v := range x {
			y[i] = f(v)
		}
		return
	}
	up = up[:len(x)]
	for i, v := range x {
		y[i] = flush(f(v) * up[i])
	}
}

func scoresGeneric(dst []float32, u []unitSums, exp2q []float32, exps []int16, scale float32) {
	for p := range u {
		for i, e := range exp2q {
			hi, lo := u[p][0][2*i*panelRows:][:2*panelRows], u[p][1][2*i*panelRows:][:2*panelRows]
			for n, exp := range exps[p*panelRows:][:panelRows] {
				m := hi[panelRows+n] + lo[n]
				c := float32(float32(hi[n])*256) + float32(m)
				c = float32(c*256) + float32(lo[panelRows+n])
				dst[i*blockPositions+p*panelRows+n] = flush(float32(float32(c*e)*pow2(int(exp))) * scale)
			}
		}
	}
}

func highestGeneric(best, x []float32) {
	for i := range best {
		for _, v := range x[i*blockPositions:][:blockPositions] {
			if v > best[i] {
				best[i] = v
			}
		}
	}
}

func weighGeneric(w []float32, m float32, exps []int16) (sum int64, top uint32) {
	exps = exps[:len(w)]
	for i, s := range w {
		v := float32(0)
		if p := Exp(s - m); p >= 1.0/(1<<40) {
			sum += round64(p * (1 << 36))
			v = p * pow2(int(exps[i]))
		}
		w[i] = v
		top = max(top, math.Float32bits(v))
	}
	return
}

func accumulateGeneric(total []int64, stride int, u, low []unitSums, parts []blockWeights, tops []int32) {
	for i := range parts {
		part := &parts[i]
		n := part.shift(tops[i])
		if n < leastShift {
			continue
		}
		offset := valueOffset * int64(part.sum)
		for p := range u {
			hi, lo := u[p][0][2*i*panelRows:][:2*panelRows], u[p][1][2*i*panelRows:][:2*panelRows]
			for d := range panelRows {
				b := int64(hi[d])<<16 + (int64(lo[d])+int64(hi[panelRows+d]))<<8 + int64(lo[panelRows+d])
				if part.limbs == 3 {
					b = b<<8 + int64(low[p][0][i*panelRows+d])<<8 + int64(low[p][1][i*panelRows+d])
				}
				total[i*stride+p*panelRows+d] += shift(b-offset, n)
			}
		}
	}
}

// leastShift is the least n that leaves anything of a sum.
const leastShift = -62

// shift is by how much the sums of a block are shifted, given X; less than leastShift if there are none.
func (w *blockWeights) shift(top int32) int {
	if w.limbs == 0 {
		return leastShift - 1
	}
	return int(w.exp-top) + 12
}

// shift is v * 2^n rounded to nearest, halves up, -62 <= n.
func shift(v int64, n int) int64 {
	if n >= 0 {
		return v << n
	}
	return (v + 1<<(-n-1)) >> -n
}
