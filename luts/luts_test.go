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
	for _, c := range [][3]int{{-128, -128, 16384}, {-128, 127, -16256}, {127, 127, 16129}, {0, -1, 0}, {3, -5, -15}} {
		if got := Mul(int8(c[0]), int8(c[1])); int(got) != c[2] {
			t.Errorf("Mul(%d, %d) = %d, want %d", c[0], c[1], got, c[2])
		}
	}
}
