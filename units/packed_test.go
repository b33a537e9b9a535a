package units_test

import (
	"bytes"
	"slices"
	"testing"
	"unsafe"

	"dchain/units"
)

// packedShapes end within a panel and within a group of inputs, or do not.
var packedShapes = []struct{ n, k int }{{1, 1}, {16, 16}, {48, 64}, {33, 70}, {17, 259}}

// TestPacked: a matrix made of packed bytes has them, and multiplies like the one they came from.
func TestPacked(t *testing.T) {
	for _, mode := range []units.WeightMode{units.Int8, units.Int8x2} {
		for _, shape := range packedShapes {
			d, other := newPacker(t), newPacker(t)
			if d.Packing() != other.Packing() {
				t.Fatalf("packings %q and %q", d.Packing(), other.Packing())
			}
			seq := sequence(7)
			l, err := d.NewLinear("w", shape.n, shape.k, mode)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := d.Packed(l); err == nil {
				t.Error("a matrix was packed before it was finished")
			}
			if err := l.PutRows(0, seq.fill(shape.n*shape.k, 0.3)); err != nil {
				t.Fatal(err)
			}
			if err := l.Finish(); err != nil {
				t.Fatal(err)
			}
			packed, err := d.Packed(l)
			if err != nil {
				t.Fatal(err)
			}
			if int64(len(packed)) != l.Bytes() {
				t.Errorf("%d bytes, the matrix says %d", len(packed), l.Bytes())
			}
			if _, err := other.Packed(l); err == nil {
				t.Error("a matrix of another device was packed")
			}
			opened, err := other.OpenLinear("w", shape.n, shape.k, mode, aligned(packed, 0))
			if err != nil {
				t.Fatal(err)
			}
			if err := opened.PutRows(0, make([]float32, shape.k)); err == nil {
				t.Error("a row was put into a finished matrix")
			}
			if again, err := other.Packed(opened); err != nil || !bytes.Equal(again, packed) {
				t.Errorf("packing again gives other bytes (%v)", err)
			}
			x := seq.fill(3*shape.k, 2)
			if got, want := product(t, other, opened, x), product(t, d, l, x); !slices.Equal(got, want) {
				t.Errorf("%v %dx%d: computed %v from packed bytes, %v before", mode, shape.n, shape.k, got, want)
			}
			for name, bad := range map[string][]byte{
				"short": aligned(packed[:len(packed)-1], 0), "long": aligned(append(slices.Clone(packed), 0), 0), "unaligned": aligned(packed, 4),
			} {
				if _, err := other.OpenLinear("w", shape.n, shape.k, mode, bad); err == nil {
					t.Errorf("%s bytes were opened", name)
				}
			}
		}
	}
}

func newPacker(t *testing.T) units.Packer {
	t.Helper()
	d, err := units.NewCPU(units.CPUOptions{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d.(units.Packer)
}

// aligned copies b to an address that is off above a multiple of 64.
func aligned(b []byte, off int) []byte {
	room := make([]byte, len(b)+128)
	start := -int(uintptr(unsafe.Pointer(unsafe.SliceData(room)))) & 63
	return append(room[start+off:start+off], b...)
}

// product is w times the rows of x.
func product(t *testing.T, d units.Device, w units.Linear, x []float32) []float32 {
	t.Helper()
	n, k := w.Shape()
	exec, err := d.Compile(units.Program{
		In: 0, Out: 2, Bufs: []units.BufSpec{{Kind: units.F32, Width: k}, {Kind: units.Limbs, Width: k}, {Kind: units.F32, Width: n}},
		Ops: []units.Op{
			{Kind: units.OpQuantize, Dst: 1, A: 0, B: units.None},
			{Kind: units.OpLinear, Dst: 2, A: 1, B: units.None, Linear: w},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	rows := make([]units.Row, len(x)/k)
	out := make([]float32, len(rows)*n)
	if err := exec.Run(rows, x, out); err != nil {
		t.Fatal(err)
	}
	return out
}
