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

func scoresGeneric(dst []float32, hi, lo []int32, exp2q float32, exps []int16, scale float32) {
	for i := range dst[:panelRows] {
		m := hi[panelRows+i] + lo[i]
		c := float32(float32(hi[i])*256) + float32(m)
		c = float32(c*256) + float32(lo[panelRows+i])
		dst[i] = flush(float32(float32(c*exp2q)*pow2(int(exps[i]))) * scale)
	}
}

func highestGeneric(x []float32) float32 {
	m := x[0]
	for _, v := range x {
		if v > m {
			m = v
		}
	}
	return m
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

func accumulateGeneric(total []int64, u, u2 []int32, limbs, n int) {
	for d := range total[:panelRows] {
		b := int64(0)
		for i := range limbs {
			b = b<<8 + int64(u[i*panelRows+d])<<8 + int64(u2[i*panelRows+d])
		}
		total[d] += shift(b, n)
	}
}

// shift is v * 2^n rounded to nearest, halves up, -62 <= n.
func shift(v int64, n int) int64 {
	if n >= 0 {
		return v << n
	}
	return (v + 1<<(-n-1)) >> -n
}
