package unitstest

import (
	"fmt"
	"math"

	"dchain/luts"
	"dchain/units"
)

// The reference: NUMERICS.md written down as plainly as possible, one value at a time, with float64 and int64 where
// they are exact. It shares no code with any device.

type f32 = float32

func flush(x f32) f32 {
	if math.Abs(float64(x)) < math.Ldexp(1, -63) {
		return 0
	}
	return x
}

func pow2(e int) f32 { return f32(math.Ldexp(1, e)) }

// rne is RNE(x * 2^e); the scaling is exact in float64.
func rne(x f32, e int) int64 { return int64(math.RoundToEven(math.Ldexp(float64(x), e))) }

// log2Floor is floor(log2 |x|), x != 0.
func log2Floor(x f32) int {
	_, e := math.Frexp(float64(x))
	return e - 1
}

func maxAbs(x []f32) f32 {
	m := f32(0)
	for _, v := range x {
		if v < 0 {
			v = -v
		}
		if v > m {
			m = v
		}
	}
	return m
}

// qrow is a quantised row: q[k] * 2^exp, limbs[i][k] most significant first.
type qrow struct {
	q     []int64
	limbs [][]int8
	exp   int
}

// cut splits v into n limbs in [-128, 127], most significant first.
func cut(v int64, n int) []int8 {
	out := make([]int8, n)
	for i := n - 1; i >= 0; i-- {
		lo := int64(int8(v))
		out[i] = int8(lo)
		v = (v - lo) / 256
	}
	if v != 0 {
		panic(fmt.Sprintf("value does not fit %d limbs", n))
	}
	return out
}

func quantise(x []f32, mayBeWide bool) qrow {
	m := maxAbs(x)
	e, n := -80, 2
	if m != 0 {
		e = max(log2Floor(m)-14, -80)
		if rne(m, -e) > 32639 {
			e++
		}
	}
	q := make([]int64, len(x))
	var largest, sum int64
	for k := range x {
		q[k] = rne(x[k], -e)
		a := max(q[k], -q[k]) / 2
		largest = max(largest, a)
		sum += a
	}
	if m != 0 && mayBeWide && largest > 48*((sum-largest)/int64(len(x))) {
		e, n = e-8, 3
		for k := range x {
			q[k] = max(-8355711, min(8355711, rne(x[k], -e)))
		}
	}
	row := qrow{q: q, exp: e, limbs: make([][]int8, n)}
	for k := range q {
		for i, l := range cut(q[k], n) {
			if k == 0 {
				row.limbs[i] = make([]int8, len(q))
			}
			row.limbs[i][k] = l
		}
	}
	return row
}

// unit is U: the sum of int8 products by the table that defines them.
func unit(a, b []int8) int64 {
	s := int64(0)
	for k := range a {
		s += int64(luts.Mul(a[k], b[k]))
	}
	if s != int64(int32(s)) {
		panic("unit sum does not fit 32 bits")
	}
	return s
}

// weights is a quantised weight row.
type weights struct {
	scale f32
	limbs [][]int8
}

func quantiseWeights(w []f32, mode units.WeightMode) weights {
	top := f32(127)
	if mode == units.Int8x2 {
		top = 32639
	}
	absmax := maxAbs(w)
	out := weights{limbs: make([][]int8, mode.Limbs())}
	for i := range out.limbs {
		out.limbs[i] = make([]int8, len(w))
	}
	if float64(absmax) < math.Ldexp(1, -50) {
		return out
	}
	out.scale = flush(absmax / top)
	inv := top / absmax
	for k := range w {
		q := max(-int64(top), min(int64(top), rne(f32(w[k]*inv), 0)))
		for i, l := range cut(q, mode.Limbs()) {
			out.limbs[i][k] = l
		}
	}
	return out
}

func linear(x qrow, w weights, bias f32, hasBias bool) f32 {
	var t f32
	for i, b := range w.limbs {
		T := f32(0)
		for j, a := range x.limbs {
			u := f32(unit(a, b))
			if j == 0 {
				T = u
			} else {
				T = f32(T*256) + u
			}
		}
		if i == 0 {
			t = T
		} else {
			t = f32(t*256) + T
		}
	}
	y := f32(f32(t*pow2(x.exp)) * w.scale)
	if hasBias {
		y += bias
	}
	return flush(y)
}

// sums gives the sum of g and of g^2 and E of section 5.
func sums(x []f32) (s, s2 int64, e int) {
	if m := maxAbs(x); m != 0 {
		e = max(log2Floor(m), -60)
	}
	for _, v := range x {
		g := rne(v, 20-e)
		s += g
		s2 += g * g
	}
	return
}

func norm(kind units.NormKind, x, w, b []f32, eps f32) []f32 {
	invK := f32(1) / f32(len(x))
	d := append([]f32(nil), x...)
	if kind == units.LayerNorm {
		s, _, e := sums(x)
		mu := f32(f32(f32(s)*pow2(e-20)) * invK)
		for k := range d {
			d[k] = flush(x[k] - mu)
		}
	}
	_, s2, e := sums(d)
	ms := f32(f32(f32(f32(s2)*pow2(e-20))*pow2(e-20)) * invK)
	r := rsqrt(ms + eps)
	y := make([]f32, len(x))
	for k := range y {
		v := f32(flush(f32(d[k]*r)) * w[k])
		if b != nil {
			v += b[k]
		}
		y[k] = flush(v)
	}
	return y
}

func exp2(t f32) f32 {
	if t < -60 {
		return 0
	}
	i := rne(t, 24)
	n, f := int(math.Floor(float64(i)/(1<<24))), i&0xffffff
	z := f32(f32(f&0xffff) * f32(math.Ln2/(1<<24)))
	p := f32(z * 0.5)
	p = p + 1
	p = f32(p * z)
	p = p + 1
	return f32(f32(luts.Exp2[f>>16]*p) * pow2(n))
}

func exp(x f32) f32 { return exp2(f32(x * f32(math.Log2E))) }

func recip(d f32) f32 {
	frac, e := math.Frexp(float64(d)) // d = frac * 2^e, frac in [0.5, 1)
	m := f32(frac * 2)
	y := luts.Recip[int((float64(m)-1)*256)]
	for range 2 {
		p := f32(m * y)
		y = f32(y * (2 - p))
	}
	return f32(y * pow2(1-e))
}

func rsqrt(d f32) f32 {
	k := int(math.Floor(float64(log2Floor(d)) / 2))
	m := f32(math.Ldexp(float64(d), -2*k)) // in [1, 4)
	i := int((float64(m) - 1) * 256)
	if m >= 2 {
		i = 256 + int((float64(m)/2-1)*256)
	}
	y := luts.Rsqrt[i]
	for range 2 {
		p := f32(f32(f32(0.5*m)*y) * y)
		y = f32(y * (1.5 - p))
	}
	return f32(y * pow2(-k))
}

func sigmoid(x f32) f32 {
	e := exp(-f32(math.Abs(float64(x))))
	r := recip(1 + e)
	if x >= 0 {
		return r
	}
	return f32(e * r)
}

func activate(kind units.ActKind, x f32) f32 {
	switch kind {
	case units.SiLU:
		return flush(x * sigmoid(x))
	case units.ReLU:
		if x > 0 {
			return x
		}
		return 0
	case units.GELU:
		return gelu(x)
	}
	switch {
	case x > 16:
		return x
	case x < -16:
		return 0
	}
	cube := f32(f32(x*x) * x)
	scaled := f32(cube * f32(0.044715))
	u := f32((x + scaled) * f32(2*math.Sqrt(2/math.Pi)))
	return flush(x * sigmoid(u))
}

func gelu(x f32) f32 {
	a, Q := math.Abs(float64(x)), f32(0)
	if a < 6 {
		j := int(a * 32)
		h := f32(a - (float64(j)+0.5)/32)
		for i := 3; i >= 0; i-- {
			Q = f32(Q*h) + luts.Gauss[4*j+i]
		}
	}
	p := f32(x * Q)
	if x < 0 {
		return flush(p)
	}
	return flush(x - p)
}

func softcap(x, limit f32) f32 {
	inv := f32(1 / limit)
	a := f32(f32(math.Abs(float64(x))) * inv)
	E := exp(-2 * a)
	n, d := 1-E, 1+E
	y := f32(limit * f32(n*recip(d)))
	if x < 0 {
		y = -y
	}
	return flush(y)
}

func rope(x []f32, op units.Op, cos, sin []f32) {
	half := op.RotaryDim / 2
	for h := range op.Heads {
		for i := range half {
			a, b := h*op.HeadDim+i, h*op.HeadDim+i+half
			if op.Interleaved {
				a, b = h*op.HeadDim+2*i, h*op.HeadDim+2*i+1
			}
			x0, x1 := x[a], x[b]
			p, q := f32(x0*cos[i]), f32(x1*sin[i])
			x[a] = flush(p - q)
			p, q = f32(x1*cos[i]), f32(x0*sin[i])
			x[b] = flush(p + q)
		}
	}
}

// route is section 10 for one row of router logits: the selected indices, then the weights.
func route(l []f32, topK int, normalise bool) []f32 {
	m := f32(math.Inf(-1))
	p, chosen := make([]f32, len(l)), make([]bool, len(l))
	for _, v := range l {
		m = max(m, v)
	}
	D := uint64(0)
	for i, v := range l {
		p[i] = exp(v - m)
		before := 0 // how many experts are preferred to i
		for j, w := range l {
			if w > v || w == v && j < i {
				before++
			}
		}
		chosen[i] = before < topK
		if chosen[i] || !normalise {
			D += uint64(rne(p[i], 36))
		}
	}
	r := recip(f32(f32(D) * pow2(-36)))
	var indices, weights []f32
	for i := range l {
		if chosen[i] {
			indices, weights = append(indices, f32(i)), append(weights, flush(p[i]*r))
		}
	}
	return append(indices, weights...)
}

// attend is section 8 for one query head: k and v are the quantised rows of positions 0..pos of its key-value head.
func attend(query []f32, k, v []qrow, op units.Op, slope *f32) []f32 {
	pos := len(k) - 1
	first := 0
	if op.Window > 0 {
		first = max(0, pos-op.Window+1)
	}
	q := quantise(query, false)
	s := make([]f32, pos+1)
	m := f32(math.Inf(-1))
	for j := first; j <= pos; j++ {
		H := unit(q.limbs[0], k[j].limbs[0])
		M := unit(q.limbs[0], k[j].limbs[1]) + unit(q.limbs[1], k[j].limbs[0])
		L := unit(q.limbs[1], k[j].limbs[1])
		c := f32(f32(H)*256) + f32(M)
		c = f32(c*256) + f32(L)
		s[j] = flush(f32(f32(f32(c*pow2(q.exp))*pow2(k[j].exp)) * op.Scale))
		if op.Cap != 0 {
			s[j] = softcap(s[j], op.Cap)
		}
		if slope != nil {
			bias := f32(*slope * f32(j-pos))
			s[j] = flush(s[j] + bias)
		}
		m = max(m, s[j])
	}
	w := make([]f32, pos+1)
	D := uint64(0)
	for j := first; j <= pos; j++ {
		p := exp(s[j] - m)
		if float64(p) < math.Ldexp(1, -40) {
			p = 0
		}
		D += uint64(rne(p, 36))
		w[j] = f32(p * pow2(v[j].exp))
	}
	r := recip(f32(f32(D) * pow2(-36)))
	type block struct {
		row   qrow
		first int
		c     int
	}
	var blocks []block
	X := -1000
	for b := first / 64 * 64; b <= pos; b += 64 {
		lo, hi := max(b, first), min(b+64, pos+1)
		if maxAbs(w[lo:hi]) == 0 {
			continue
		}
		row := quantise(w[lo:hi], true)
		c := row.exp
		if len(row.limbs) == 3 {
			c += 8
		}
		X = max(X, c)
		blocks = append(blocks, block{row, lo, c})
	}
	out := make([]f32, len(query))
	for d := range out {
		total := int64(0)
		for _, b := range blocks {
			B := int64(0)
			for i, wq := range b.row.q {
				B += wq * v[b.first+i].q[d]
			}
			n := b.row.exp - X + 12
			switch {
			case n >= 0:
				total += B << n
			case n >= -62:
				total += (B + int64(1)<<(-n-1)) >> -n
			}
		}
		out[d] = flush(f32(f32(f32(total)*pow2(X-12)) * r))
	}
	return out
}
