package units

import (
	"bytes"
	"errors"
	"math"
	"testing"
)

// TestVulkanPacked: a matrix made of the bytes of another device, which binds less at once, has them and multiplies like the one
// they came from.
func TestVulkanPacked(t *testing.T) {
	for _, mode := range []WeightMode{Int8, Int8x2} {
		const n, k = 300, 70
		d, other := vulkanTest(t, VulkanOptions{}), vulkanTest(t, VulkanOptions{})
		limits := *other.info
		limits.MaxRange = int64(rowsPerPart * padded(k, vulkanPadK) * mode.Limbs())
		other.info = &limits
		if d.Packing() != other.Packing() {
			t.Fatalf("packings %q and %q", d.Packing(), other.Packing())
		}
		s := gateSeries(7)
		l, err := s.linear(d, n, k, mode)
		if err != nil {
			t.Fatal(err)
		}
		packed, err := d.Packed(l)
		if err != nil {
			t.Fatal(err)
		}
		opened, err := other.OpenLinear("w", n, k, mode, packed)
		if err != nil {
			t.Fatal(err)
		}
		if err := opened.Finish(); err != nil {
			t.Fatal(err)
		}
		if parts := len(opened.(*vulkanLinear).parts); parts != 3 {
			t.Errorf("%d parts", parts)
		}
		if err := opened.PutRows(0, make([]float32, k)); err == nil {
			t.Error("a row was put into a finished matrix")
		}
		if again, err := other.Packed(opened); err != nil || !bytes.Equal(again, packed) {
			t.Errorf("packing again gives other bytes (%v)", err)
		}
		x, out := s.values(3*k, 2), [2][]float32{}
		for i, l := range []Linear{l, opened} {
			out[i] = make([]float32, 3*n)
			e, err := l.(*vulkanLinear).dev.Compile(Program{In: 0, Out: 2, Bufs: []BufSpec{{F32, k}, {Limbs, k}, {F32, n}},
				Ops: []Op{{Kind: OpQuantize, Dst: 1, A: 0, B: None}, {Kind: OpLinear, Dst: 2, A: 1, B: None, Linear: l}}})
			if err != nil {
				t.Fatal(err)
			}
			if err := e.Run(make([]Row, 3), x, out[i]); err != nil {
				t.Fatal(err)
			}
		}
		for i := range out[0] {
			if math.Float32bits(out[0][i]) != math.Float32bits(out[1][i]) {
				t.Fatalf("%v, value %d: computed %v from packed bytes, %v before", mode, i, out[1][i], out[0][i])
			}
		}
		before := len(other.buffers)
		for name, bad := range map[string][]byte{"short": packed[:len(packed)-1], "long": append(bytes.Clone(packed), 0), "none": nil} {
			if _, err := other.OpenLinear("w", n, k, mode, bad); !errors.Is(err, ErrPacked) {
				t.Errorf("%s bytes: %v", name, err)
			}
		}
		if _, err := other.Packed(l); err == nil {
			t.Error("a matrix of another device was packed")
		}
		raw, err := d.NewLinear("w", n, k, mode)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.Packed(raw); err == nil {
			t.Error("a matrix was packed before it was finished")
		}
		if len(other.buffers) != before {
			t.Errorf("%d buffers are left of matrices that could not be opened", len(other.buffers)-before)
		}
	}
}
