package units

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// vulkanPacking changes with any change of what bytes a given matrix is packed as, beside the constant it is named by.
const vulkanPacking = 1

// Packing: for each limb [n][K, padded] int8, then the scales, [n] float32. It does not depend on the limits of a device, nor on
// its tier.
func (d *vulkanDevice) Packing() string {
	return fmt.Sprintf("vulkan %d, rows padded to %d, little-endian", vulkanPacking, vulkanPadK)
}

// Packed reads the matrix back.
func (d *vulkanDevice) Packed(w Linear) ([]byte, error) {
	l, ok := w.(*vulkanLinear)
	if !ok || l.dev != d {
		return nil, fmt.Errorf("packing a matrix: %T is none of this device", w)
	}
	if !l.sealed.Load() {
		return nil, fmt.Errorf("packing %q: it is not finished", l.name)
	}
	packed := make([]byte, l.packedLimbs(), l.packedLimbs()+4*l.n)
	for i := range l.parts {
		p := &l.parts[i]
		for limb := range l.mode.Limbs() {
			at := l.packedRow(limb, p.first)
			if err := p.buf.Read(l.offset(p, limb, 0), packed[at:at+p.count*l.rowBytes]); err != nil {
				return nil, fmt.Errorf("packing %q: %w", l.name, err)
			}
		}
	}
	return floatBytes(packed, l.scales), nil
}

// OpenLinear reserves the matrix; Finish copies the bytes to the device.
func (d *vulkanDevice) OpenLinear(name string, n, k int, mode WeightMode, packed []byte) (Linear, error) {
	w, err := d.NewLinear(name, n, k, mode)
	if err != nil {
		return nil, err
	}
	l := w.(*vulkanLinear)
	if want := l.packedLimbs() + 4*n; len(packed) != want {
		return nil, errors.Join(fmt.Errorf("opening packed %q: %d bytes, want %d: %w", name, len(packed), want, ErrPacked), l.Close())
	}
	l.packed = packed
	for i := range l.put { // no row is to be quantised
		l.put[i].Store(math.MaxUint32)
	}
	return l, nil
}

// unpack copies the packed bytes to the device.
func (l *vulkanLinear) unpack() error {
	for i := range l.parts {
		p := &l.parts[i]
		for limb := range l.mode.Limbs() {
			at := l.packedRow(limb, p.first)
			if err := p.buf.Write(l.offset(p, limb, 0), l.packed[at:at+p.count*l.rowBytes]); err != nil {
				return err
			}
		}
	}
	for i := range l.scales {
		l.scales[i] = math.Float32frombits(binary.LittleEndian.Uint32(l.packed[l.packedLimbs()+4*i:]))
	}
	l.packed = nil
	return nil
}

// packedRow is where output row n of a limb begins in packed bytes.
func (l *vulkanLinear) packedRow(limb, n int) int { return (limb*l.n + n) * l.rowBytes }

// packedLimbs is what the limbs take of packed bytes.
func (l *vulkanLinear) packedLimbs() int { return l.mode.Limbs() * l.n * l.rowBytes }
