package inspect

import (
	"encoding/binary"
	"math"
	"testing"
)

func TestFloatsConvert(t *testing.T) {
	// Every F16, against the definition.
	halves := make([]byte, 2<<16)
	for i := range 1 << 16 {
		binary.LittleEndian.PutUint16(halves[2*i:], uint16(i))
	}
	got := make([]float32, 1<<16)
	fromF16(got, halves)
	for i, f := range got {
		sign, exp, frac := float64(1), i>>10&31, float64(i&1023)
		if i>>15 == 1 {
			sign = -1
		}
		want := sign * math.Ldexp(1+frac/1024, exp-15)
		switch {
		case exp == 0:
			want = sign * math.Ldexp(frac, -24)
		case exp == 31 && frac == 0:
			want = math.Inf(int(sign))
		case exp == 31:
			if !math.IsNaN(float64(f)) {
				t.Fatalf("F16 %#04x is %v, want NaN", i, f)
			}
			continue
		}
		if float64(f) != want || math.Signbit(float64(f)) != (sign < 0) {
			t.Fatalf("F16 %#04x is %v, want %v", i, f, want)
		}
	}
	fromBF16(got, halves)
	for i, f := range got {
		if math.Float32bits(f) != uint32(i)<<16 {
			t.Fatalf("BF16 %#04x is %#08x", i, math.Float32bits(f))
		}
	}
	fromF32(got[:1<<15], halves)
	if want := uint32(0x00050004); math.Float32bits(got[2]) != want {
		t.Errorf("F32 2 is %#08x, want %#08x", math.Float32bits(got[2]), want)
	}
}

func TestFloatsRanges(t *testing.T) {
	src, err := NewSynthetic("qwen2.5-tiny")
	if err != nil {
		t.Fatal(err)
	}
	x := src.index.Tensors["model.embed_tokens.weight"] // 2 MiB: more than one chunk
	all := make([]float32, x.Elems())
	if err := readFloats(t.Context(), src, x, 0, x.Elems(), all); err != nil {
		t.Fatal(err)
	}
	for _, r := range [][2]int64{{0, 0}, {0, 1}, {5, 7}, {x.Elems() - 3, 3}, {1, x.Elems() - 1}} {
		part := make([]float32, r[1])
		if err := readFloats(t.Context(), src, x, r[0], r[1], part); err != nil {
			t.Fatal(err)
		}
		for i, f := range part {
			if f != all[r[0]+int64(i)] {
				t.Fatalf("elements %v: differs at %d", r, i)
			}
		}
	}
	for _, r := range [][2]int64{{-1, 1}, {0, -1}, {1, x.Elems()}, {math.MaxInt64, 1}} {
		if err := readFloats(t.Context(), src, x, r[0], r[1], all); err == nil {
			t.Errorf("elements %v: no error", r)
		}
	}
	if err := readFloats(t.Context(), src, x, 0, 8, all[:7]); err == nil {
		t.Error("short destination: no error")
	}
}

func BenchmarkFloats(b *testing.B) {
	src, err := NewSynthetic("qwen2.5-0.5b")
	if err != nil {
		b.Fatal(err)
	}
	p := make([]byte, 1<<20)
	dst := make([]float32, 1<<19)
	if err := src.ReadAt(b.Context(), singleFile, p, 0); err != nil {
		b.Fatal(err)
	}
	for name, f := range map[string]func([]float32, []byte){"BF16": fromBF16, "F16": fromF16} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(p)))
			for b.Loop() {
				f(dst, p)
			}
		})
	}
}
