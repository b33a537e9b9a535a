package units

import (
	"math"
	"math/rand/v2"
	"testing"
)

// ulps is the distance of got from the exact value, in units of the float32 spacing at the exact value.
func ulps(got float32, exact float64) float64 {
	e := math.Floor(math.Log2(math.Abs(exact)))
	return math.Abs(float64(got)-exact) / math.Ldexp(1, int(e)-23)
}

func TestFunctionAccuracy(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	uniform := func(lo, hi float64) func() float32 {
		return func() float32 { return float32(lo + (hi-lo)*rng.Float64()) }
	}
	logarithmic := func(lo, hi float64) func() float32 {
		return func() float32 { return float32(math.Exp2(lo + (hi-lo)*rng.Float64())) }
	}
	tanhForm := func(x float64) float64 {
		return 0.5 * x * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
	}
	for _, c := range []struct {
		name  string
		f     func(float32) float32
		exact func(float64) float64
		draw  func() float32
		limit float64 // ulps
	}{
		{"exp2", exp2, math.Exp2, uniform(-60, 0), 2.5},
		{"exp2 near 0", exp2, math.Exp2, func() float32 { return -float32(math.Exp2(-20 * rng.Float64())) }, 2.5},
		{"exp", Exp, math.Exp, uniform(-1, 0), 3},
		{"exp far", Exp, math.Exp, uniform(-40, 0), 50},
		{"recip", recip, func(x float64) float64 { return 1 / x }, logarithmic(-100, 100), 2.2},
		{"rsqrt", rsqrt, func(x float64) float64 { return 1 / math.Sqrt(x) }, logarithmic(-60, 60), 2.4},
		{"sigmoid", sigmoid, func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }, uniform(-4, 20), 8},
		{"silu", silu, func(x float64) float64 { return x / (1 + math.Exp(-x)) }, uniform(-4, 20), 9},
		{"gelu", geluTanh, tanhForm, uniform(-1, 20), 12},
	} {
		worst, at := 0.0, float32(0)
		for range 200000 {
			x := c.draw()
			if u := ulps(c.f(x), c.exact(float64(x))); u > worst {
				worst, at = u, x
			}
		}
		if worst > c.limit {
			t.Errorf("%s: %.2f ulps at %v, want at most %v", c.name, worst, at, c.limit)
		}
		t.Logf("%s: %.2f ulps at %v", c.name, worst, at)
	}
	for range 1000000 {
		x := float32(16 * (rng.Float64() - 0.5))
		if rng.IntN(4) == 0 {
			x = float32(math.Ldexp(rng.NormFloat64(), -rng.IntN(40)))
		}
		exact := float64(x) * math.Erfc(-float64(x)/math.Sqrt2) / 2
		if d := math.Abs(float64(gelu(x)) - exact); d > 1.5e-7*math.Max(1, math.Abs(float64(x))) {
			t.Fatalf("exact gelu of %v is off by %v", x, d)
		}
		for _, limit := range []float32{1, 30, 50} {
			v := x * limit / 2
			exact := float64(limit) * math.Tanh(float64(v)/float64(limit))
			if d := math.Abs(float64(softcap(v, limit, 1/limit)) - exact); d > 3e-7*float64(limit) {
				t.Fatalf("soft cap %v of %v is off by %v", limit, v, d)
			}
		}
	}
	// Where the result is small, against the size of the input.
	for range 200000 {
		x := float32(40 * (rng.Float64() - 0.5))
		for _, d := range []float64{float64(silu(x)) - float64(x)/(1+math.Exp(-float64(x))), float64(geluTanh(x)) - tanhForm(float64(x))} {
			if math.Abs(d) > 4e-7*math.Max(1, math.Abs(float64(x))) {
				t.Fatalf("activation of %v is off by %v", x, d)
			}
		}
	}
}

func TestFunctionEdges(t *testing.T) {
	inf := float32(math.Inf(1))
	for _, c := range []struct {
		name      string
		got, want float32
	}{
		{"exp2(0)", exp2(0), 1}, {"exp2(-1)", exp2(-1), 0.5}, {"exp2(-60)", exp2(-60), 1.0 / (1 << 60)},
		{"exp2(below -60)", exp2(-60.00001), 0}, {"exp(-inf)", Exp(-inf), 0}, {"exp(0)", Exp(0), 1},
		{"recip(1)", recip(1), 1}, {"recip(4)", recip(4), 0.25}, {"rsqrt(1)", rsqrt(1), 1}, {"rsqrt(0.25)", rsqrt(0.25), 2},
		{"sigmoid(0)", sigmoid(0), 0.5}, {"silu(-1000)", silu(-1000), 0}, {"silu(1000)", silu(1000), 1000},
		{"gelu(17)", geluTanh(17), 17}, {"gelu(-17)", geluTanh(-17), 0}, {"gelu(16)", geluTanh(16), 16}, {"gelu(0)", geluTanh(0), 0},
		{"exact gelu(0)", gelu(0), 0}, {"exact gelu(6)", gelu(6), 6}, {"exact gelu(-6)", gelu(-6), 0}, {"exact gelu(-1e30)", gelu(-1e30), 0},
		{"relu(3)", relu(3), 3}, {"relu(-3)", relu(-3), 0}, {"relu(-0)", relu(float32(math.Copysign(0, -1))), 0},
		{"softcap(0)", softcap(0, 30, 1.0/30), 0}, {"softcap(1e38)", softcap(1e38, 0.5, 2), 0.5}, {"softcap(-1e38)", softcap(-1e38, 50, 1.0/50), -50},
		{"flush(2^-63)", flush(1.0 / (1 << 63)), 1.0 / (1 << 63)}, {"flush(below)", flush(0.99 / (1 << 63)), 0},
		{"flush(-0)", flush(float32(math.Copysign(0, -1))), 0},
	} {
		if math.Float32bits(c.got) != math.Float32bits(c.want) {
			t.Errorf("%s = %v, want %v", c.name, c.got, c.want)
		}
	}
}

func TestRound(t *testing.T) {
	for _, c := range []struct {
		x    float32
		want int64
	}{{0, 0}, {0.5, 0}, {1.5, 2}, {-0.5, 0}, {-1.5, -2}, {2.5, 2}, {-2.5, -2}, {32639.5, 32640}, {8388607.5, 8388608}, {-1 << 30, -1 << 30}, {1<<31 - 128, 1<<31 - 128}} {
		if got := int64(round(c.x)); got != c.want {
			t.Errorf("round(%v) = %d, want %d", c.x, got, c.want)
		}
		if got := round64(c.x); got != c.want {
			t.Errorf("round64(%v) = %d, want %d", c.x, got, c.want)
		}
	}
	if got := round64(1 << 36); got != 1<<36 {
		t.Errorf("round64(2^36) = %d", got)
	}
}

func TestLimbs(t *testing.T) {
	for q := int32(-maxTwoLimbs); q <= maxTwoLimbs; q++ {
		if hi, lo := limbs2(q); int32(hi)*256+int32(lo) != q {
			t.Fatalf("%d is cut into %d, %d", q, hi, lo)
		}
	}
	for q := int32(-maxThree); q <= maxThree; q += 7 {
		if a, b, c := limbs3(q); int32(a)<<16+int32(b)*256+int32(c) != q {
			t.Fatalf("%d is cut into %d, %d, %d", q, a, b, c)
		}
	}
	if a, b, c := limbs3(maxThree); a != 127 || b != 127 || c != 127 {
		t.Errorf("the largest is cut into %d, %d, %d", a, b, c)
	}
}

// TestRopeTables compares with the library's functions, which are good to about an ulp of float64 here.
func TestRopeTables(t *testing.T) {
	for _, theta := range []float64{10000, 500000, 1e6} {
		const ctx, rot = 3000, 64
		cos, sin := RopeTables(ctx, rot, theta)
		inv := InvFreq(rot, theta)
		for i, f := range inv {
			if want := float32(1 / math.Pow(theta, float64(2*i)/rot)); math.Abs(float64(f-want)) > 1.2e-7*float64(want) {
				t.Fatalf("theta %v: inverse frequency %d is %v, want %v", theta, i, f, want)
			}
			for pos := range ctx {
				angle := float64(float32(pos) * f)
				at := pos*len(inv) + i
				if ulps(cos[at], math.Cos(angle)) > 0.5001 || ulps(sin[at], math.Sin(angle)) > 0.5001 && sin[at] != 0 {
					t.Fatalf("theta %v, position %d, pair %d: %v, %v of %v", theta, pos, i, cos[at], sin[at], angle)
				}
			}
		}
	}
	// Far positions, where the reduction matters most.
	rng := rand.New(rand.NewPCG(5, 6))
	for range 200000 {
		x := float64(float32(rng.Float64() * 1e6))
		s, c := sincos64(x)
		if ws, wc := math.Sincos(x); math.Abs(s-ws) > 4e-16 || math.Abs(c-wc) > 4e-16 {
			t.Fatalf("sincos(%v) = %v, %v, want %v, %v", x, s, c, ws, wc)
		}
		y := rng.Float64()*40 - 20
		if e := exp64(y); math.Abs(e-math.Exp(y)) > 4e-16*e {
			t.Fatalf("exp(%v) = %v, want %v", y, e, math.Exp(y))
		}
		z := math.Exp2(rng.Float64()*60 - 30)
		if l := log64(z); math.Abs(l-math.Log(z)) > 3e-16*math.Max(1, math.Abs(l)) {
			t.Fatalf("log(%v) = %v, want %v", z, l, math.Log(z))
		}
	}
	if c, s := RopeTablesFrom(2, []float32{0.5}, 2); c[0] != 2 || s[0] != 0 || c[1] != 2*float32(math.Cos(0.5)) {
		t.Errorf("scaled tables: %v, %v", c, s)
	}
}
