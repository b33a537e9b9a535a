package inspect

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"sync"
)

// floatsChunk is the buffer of one conversion: large enough to make reads cheap, small enough for many at once.
const floatsChunk = 1 << 20

var chunkPool = sync.Pool{New: func() any { b := make([]byte, floatsChunk); return &b }}

// Floats reads elements [first, first+n) of t, in the order they are stored, into dst[:n] as float32. F32, F16 and
// BF16 convert exactly; F8_E4M3 is multiplied by the scale of its block, rounded once; other dtypes are an error. Memory
// in use is bounded whatever n is.
func (m *Model) Floats(ctx context.Context, t Tensor, first, n int64, dst []float32) error {
	if err := readFloats(ctx, m.Source, t, first, n, dst); err != nil || t.DType != F8 {
		return err
	}
	scales, err := m.blockScales(ctx, t)
	if err != nil {
		return err
	}
	scales.apply(first, dst[:n])
	return nil
}

func readFloats(ctx context.Context, src Source, t Tensor, first, n int64, dst []float32) error {
	var size int64
	var convert func(dst []float32, src []byte)
	switch t.DType {
	case F32:
		size, convert = 4, fromF32
	case F16:
		size, convert = 2, fromF16
	case BF16:
		size, convert = 2, fromBF16
	case F8:
		size, convert = 1, fromF8
	default:
		return fmt.Errorf("reading tensor %q: dtype %s is not supported (F32, F16 or BF16)", t.Name, t.DType)
	}
	if elems := t.Elems(); first < 0 || n < 0 || first > elems-n || n > int64(len(dst)) {
		return fmt.Errorf("reading tensor %q: elements %d+%d of %d into %d", t.Name, first, n, elems, len(dst))
	}
	buf := chunkPool.Get().(*[]byte)
	defer chunkPool.Put(buf)
	for done := int64(0); done < n; {
		k := min(n-done, floatsChunk/size)
		p := (*buf)[:k*size]
		if err := src.ReadAt(ctx, t.File, p, t.Begin+(first+done)*size); err != nil {
			return fmt.Errorf("reading tensor %q: %w", t.Name, err)
		}
		convert(dst[done:done+k], p)
		done += k
	}
	return nil
}

func fromF32(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
	}
}

func fromBF16(dst []float32, src []byte) {
	for len(dst) >= 4 && len(src) >= 8 {
		v := binary.LittleEndian.Uint64(src)
		dst[0] = math.Float32frombits(uint32(v) << 16)
		dst[1] = math.Float32frombits(uint32(v) &^ 0xffff)
		dst[2] = math.Float32frombits(uint32(v>>32) << 16)
		dst[3] = math.Float32frombits(uint32(v>>32) &^ 0xffff)
		dst, src = dst[4:], src[8:]
	}
	for i := range dst {
		dst[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(src[2*i:])) << 16)
	}
}

// fromF16 moves exponent and mantissa into place and multiplies by 2^112, the difference of the exponent biases. The
// product is exact, also for the subnormals of F16, which are normal numbers in float32.
func fromF16(dst []float32, src []byte) {
	scale := math.Float32frombits((127 + 112) << 23)
	for i := range dst {
		h := uint32(binary.LittleEndian.Uint16(src[2*i:]))
		bits := (h & 0x7fff) << 13
		if h&0x7c00 == 0x7c00 { // infinities and NaN
			bits |= 0xff << 23
		} else {
			bits = math.Float32bits(math.Float32frombits(bits) * scale)
		}
		dst[i] = math.Float32frombits(bits | (h&0x8000)<<16)
	}
}
