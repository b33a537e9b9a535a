package luts

import (
	"bytes"
	"encoding/binary"
	"flag"
	"math"
	"math/big"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "write the tables")

// prec is the working precision of the formulas, in bits. math/big computes with integers only, so the result is the
// same on every architecture.
const prec = 240

// round32 rounds v to the nearest float32 and fails where v is so close to a tie that its own error could decide.
func round32(t *testing.T, v *big.Float) float32 {
	t.Helper()
	f, _ := v.Float32()
	up := math.Nextafter32(f, float32(math.Inf(1)))
	down := math.Nextafter32(f, float32(math.Inf(-1)))
	for _, n := range []float32{up, down} {
		tie := new(big.Float).SetPrec(prec).SetFloat64((float64(f) + float64(n)) / 2) // exact: 25 bits
		d := new(big.Float).Sub(v, tie)
		if d.Sign() == 0 || d.MantExp(nil) < v.MantExp(nil)-150 {
			t.Fatalf("%v is a tie between %v and %v", v, f, n)
		}
	}
	return f
}

func number(x float64) *big.Float { return new(big.Float).SetPrec(prec).SetFloat64(x) }

// exp2Entry is 2^(j/256) as a product of repeated square roots of 2.
func exp2Entry(j int) *big.Float {
	v, root := number(1), number(2)
	for bit := 7; bit >= 0; bit-- {
		root = new(big.Float).SetPrec(prec).Sqrt(root)
		if j>>bit&1 == 1 {
			v.Mul(v, root)
		}
	}
	return v
}

// cell is the middle of cell j of [1, 2) cut into 256.
func cell(j int) *big.Float { return number(1 + (float64(j)+0.5)/256) }

func recipEntry(j int) *big.Float { return new(big.Float).SetPrec(prec).Quo(number(1), cell(j)) }

func rsqrtEntry(i int) *big.Float {
	m := cell(i & 255)
	if i >= 256 {
		m.Mul(m, number(2))
	}
	return new(big.Float).SetPrec(prec).Quo(number(1), new(big.Float).SetPrec(prec).Sqrt(m))
}

// pi is 16 atan(1/5) - 4 atan(1/239).
func pi() *big.Float {
	atan := func(n float64) *big.Float { // of 1/n
		sum, power := number(0), new(big.Float).Quo(number(1), number(n))
		for k := 1.0; power.MantExp(nil) > -prec; k += 2 {
			term := new(big.Float).Quo(power, number(k))
			if int(k)%4 == 3 {
				term.Neg(term)
			}
			sum.Add(sum, term)
			power.Quo(power, number(n*n))
		}
		return sum
	}
	a, b := atan(5), atan(239)
	return a.Sub(a.Mul(a, number(16)), b.Mul(b, number(4)))
}

// normal gives the upper tail Q(c) and the density phi(c) of the normal distribution, by
//
//	phi(c) = 1 / (sqrt(2 pi) * sum of (c^2/2)^n / n!),   Q(c) = 1/2 - phi(c) * sum of c^(2n+1) / (1*3*...*(2n+1))
//
// whose terms are all positive; the difference costs 30 bits at c = 6.
func normal(c float64) (q, phi *big.Float) {
	exp, tail := number(0), number(0)
	e, s := number(1), number(c)
	for n := 1.0; e.MantExp(nil) > -prec || s.MantExp(nil) > -prec; n++ {
		exp.Add(exp, e)
		tail.Add(tail, s)
		e.Quo(e.Mul(e, number(c*c)), number(2*n))
		s.Quo(s.Mul(s, number(c*c)), number(2*n+1))
	}
	phi = pi()
	phi.Sqrt(phi.Mul(phi, number(2)))
	phi.Quo(number(1), phi.Mul(phi, exp))
	q = new(big.Float).Mul(phi, tail)
	return q.Sub(number(0.5), q), phi
}

// gaussEntry is coefficient i%4 of row i/4.
func gaussEntry(i int) *big.Float {
	c := (float64(i/4) + 0.5) / 32
	q, phi := normal(c)
	switch i % 4 {
	case 0:
		return q
	case 1:
		return phi.Neg(phi)
	case 2:
		return phi.Mul(phi, number(c/2))
	}
	return phi.Quo(phi.Mul(phi, number(1-c*c)), number(6))
}

func TestTables(t *testing.T) {
	floats := func(n int, entry func(int) *big.Float) []byte {
		var b []byte
		for i := range n {
			f, exact := entry(i).Float32()
			if exact != big.Exact {
				f = round32(t, entry(i))
			}
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(f))
		}
		return b
	}
	var mul []byte
	for a := range 256 {
		for b := range 256 {
			mul = binary.LittleEndian.AppendUint16(mul, uint16(int(int8(a))*int(int8(b))))
		}
	}
	for _, c := range []struct {
		file       string
		have, want []byte
	}{
		{"exp2.bin", Exp2Bin, floats(256, exp2Entry)},
		{"recip.bin", RecipBin, floats(256, recipEntry)},
		{"rsqrt.bin", RsqrtBin, floats(512, rsqrtEntry)},
		{"gauss.bin", GaussBin, floats(768, gaussEntry)},
		{"mul.bin", MulBin, mul},
	} {
		if *update {
			if err := os.WriteFile(c.file, c.want, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if !bytes.Equal(c.have, c.want) {
			for i := range c.want {
				if i >= len(c.have) || c.have[i] != c.want[i] {
					t.Errorf("%s: byte %d differs from its formula (%d bytes, want %d)", c.file, i, len(c.have), len(c.want))
					break
				}
			}
		}
	}
}

func TestAccess(t *testing.T) {
	if Exp2[0] != 1 || Exp2[128] != float32(math.Sqrt2) {
		t.Errorf("exp2 table: %v, %v", Exp2[0], Exp2[128])
	}
	for i := 1; i < 256; i++ {
		if Exp2[i] <= Exp2[i-1] || Recip[i] >= Recip[i-1] || Rsqrt[i] >= Rsqrt[i-1] || Rsqrt[i+256] >= Rsqrt[i+255] {
			t.Errorf("tables are not monotonic at %d", i)
		}
	}
	for j := range 192 {
		c, row := (float64(j)+0.5)/32, Gauss[4*j:]
		q, phi := math.Erfc(c/math.Sqrt2)/2, math.Exp(-c*c/2)/math.Sqrt(2*math.Pi)
		for i, want := range []float64{q, -phi, phi * c / 2, phi * (1 - c*c) / 6} {
			if math.Abs(float64(row[i])-want) > 1e-7*math.Abs(want) {
				t.Errorf("gauss row %d, column %d: %v, want %v", j, i, row[i], want)
			}
		}
	}
	for _, c := range [][3]int{{-128, -128, 16384}, {-128, 127, -16256}, {127, 127, 16129}, {0, -1, 0}, {3, -5, -15}} {
		if got := Mul(int8(c[0]), int8(c[1])); int(got) != c[2] {
			t.Errorf("Mul(%d, %d) = %d, want %d", c[0], c[1], got, c[2])
		}
	}
}
