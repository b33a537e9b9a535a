package units

import (
	"errors"
	"math"
)

// The element-wise and row operations of the interpreter. Each works on part of the batch, so that the pool can share
// it out; none depends on how.

var errNotFinite = errors.New("a value is not finite")

// normRow is OpNorm for row r (section 5).
func (st *state) normRow(op *Op, r int) {
	width := st.prog.Bufs[op.A].Width
	k := width / op.Groups
	w, b := vectorOf(op.Weight), vectorOf(op.Bias)
	for g := range op.Groups {
		at := r*width + g*k
		x, y := st.f32[op.A][at:at+k], st.f32[op.Dst][at:at+k]
		ok := false
		if op.Norm == RMSNorm {
			ok = rmsNorm(st.kern, y, x, w, op.Eps)
		} else {
			ok = layerNorm(st.kern, y, x, w, b, op.Eps)
		}
		if !ok {
			st.fail(op, r, errNotFinite)
			return
		}
	}
}

// normExponent is E of section 5 for a row whose largest magnitude has these bits.
func normExponent(maxBits uint32) int {
	if maxBits == 0 {
		return 0
	}
	return max(exponent(maxBits), -60)
}

// rmsNorm computes y from x, which may be the same; false if a value is not finite.
func rmsNorm(kern *kernels, y, x, w []float32, eps float32) bool {
	r, ok := inverseRMS(kern, x, eps)
	if !ok {
		return false
	}
	kern.normalise(y, x, r, w, nil)
	return true
}

// layerNorm computes y from x, which may be the same; b may be nil. False if a value is not finite.
func layerNorm(kern *kernels, y, x, w, b []float32, eps float32) bool {
	top := kern.absMax(x)
	if top >= infBits {
		return false
	}
	e := normExponent(top)
	sum, _ := kern.moments(x, pow2(20-e))
	mu := float32(float32(float32(sum)*pow2(e-20)) * (1 / float32(len(x))))
	for i, v := range x {
		y[i] = flush(v - mu)
	}
	r, ok := inverseRMS(kern, y, eps)
	if !ok {
		return false
	}
	kern.normalise(y, y, r, w, b)
	return true
}

// inverseRMS is rsqrt of the mean square of x plus eps; false if it is not finite.
func inverseRMS(kern *kernels, x []float32, eps float32) (float32, bool) {
	top := kern.absMax(x)
	if top >= infBits {
		return 0, false
	}
	e := normExponent(top)
	_, squares := kern.moments(x, pow2(20-e))
	p := pow2(e - 20)
	ms := float32(float32(float32(squares)*p)*p) * (1 / float32(len(x)))
	d := float32(ms) + eps
	return rsqrt(d), math.Float32bits(d) < infBits
}

// ropeRow is OpRope for row r (section 7).
func (st *state) ropeRow(op *Op, r int) {
	half := op.RotaryDim / 2
	at := st.rows[r].Pos * half
	cos, sin := vectorOf(op.Cos)[at:at+half], vectorOf(op.Sin)[at:at+half]
	width := op.Heads * op.HeadDim
	for h := range op.Heads {
		x := st.f32[op.Dst][r*width+h*op.HeadDim:][:op.RotaryDim]
		if op.Interleaved {
			for i := range half {
				x[2*i], x[2*i+1] = rotate(x[2*i], x[2*i+1], cos[i], sin[i])
			}
			continue
		}
		for i := range half {
			x[i], x[i+half] = rotate(x[i], x[i+half], cos[i], sin[i])
		}
	}
}

func rotate(x0, x1, c, s float32) (float32, float32) {
	return flush(float32(x0*c) - float32(x1*s)), flush(float32(x1*c) + float32(x0*s))
}

// act is OpAct for the values [lo, hi) of the batch.
func (st *state) act(op *Op, lo, hi int) {
	var up []float32
	if op.B >= 0 {
		up = st.f32[op.B][lo:hi]
	}
	st.kern.act(op.Act, st.f32[op.Dst][lo:hi], st.f32[op.A][lo:hi], up)
}

// softcapRow computes y = softcap(x), y may be x; false if a value is not finite.
func softcapRow(kern *kernels, y, x []float32, limit float32) bool {
	if kern.absMax(x) >= infBits {
		return false
	}
	inv := 1 / limit
	for i, v := range x {
		y[i] = softcap(v, limit, inv)
	}
	return true
}

// softcapRow is OpSoftcap for row r.
func (st *state) softcapRow(op *Op, r int) {
	w := st.prog.Bufs[op.A].Width
	if !softcapRow(st.kern, st.f32[op.Dst][r*w:(r+1)*w], st.f32[op.A][r*w:(r+1)*w], op.Cap) {
		st.fail(op, r, errNotFinite)
	}
}

func (st *state) add(op *Op, lo, hi int) {
	a, b, y := st.f32[op.A][lo:hi], st.f32[op.B][lo:hi], st.f32[op.Dst][lo:hi]
	for i, v := range a {
		y[i] = flush(v + b[i])
	}
}

func (st *state) scale(op *Op, lo, hi int) {
	a, y := st.f32[op.A][lo:hi], st.f32[op.Dst][lo:hi]
	for i, v := range a {
		y[i] = flush(v * op.Scale)
	}
}
