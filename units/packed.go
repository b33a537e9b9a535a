package units

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"
)

// ErrPacked is wrapped by the errors of OpenLinear that the bytes are to blame for.
var ErrPacked = errors.New("not the bytes of such a matrix")

// Packer is a Device whose matrices can be kept in a file, quantised and laid out, for the next process.
type Packer interface {
	Device
	// Packing names the layout of packed matrices: those of one packing can be opened by every device of that packing.
	Packing() string
	// Packed is a finished matrix of this device as bytes, which may be shared with it: read only, and only while the caller
	// holds the matrix.
	Packed(l Linear) ([]byte, error)
	// OpenLinear makes a matrix of bytes that Packed gave for the same shape, mode and packing, with all its rows: what is left
	// is Finish, which several may be told at a time. The matrix may work on the bytes where they are: they are aligned to 64
	// and stay as they are as long as it is in use.
	OpenLinear(name string, n, k int, mode WeightMode, packed []byte) (Linear, error)
}

// packedAlign is the alignment of packed matrices: a cache line.
const packedAlign = 64

// cpuPacking changes with any change of what bytes a given matrix is packed as, beside the constants it is named by.
const cpuPacking = 1

func (d *cpuDevice) Packing() string {
	order := "little"
	if binary.NativeEndian.Uint16([]byte{0, 1}) == 1 {
		order = "big"
	}
	return fmt.Sprintf("cpu %d, panels of %d rows and %d inputs, rows padded to %d, %s-endian", cpuPacking, panelRows, groupK, padK, order)
}

func (d *cpuDevice) Packed(w Linear) ([]byte, error) {
	l, ok := w.(*cpuLinear)
	if !ok || l.dev != d {
		return nil, fmt.Errorf("packing a matrix: %T is none of this device", w)
	}
	if !l.sealed.Load() {
		return nil, fmt.Errorf("packing %q: it is not finished", l.name)
	}
	return l.packed, nil
}

func (d *cpuDevice) OpenLinear(name string, n, k int, mode WeightMode, packed []byte) (Linear, error) {
	l, size, err := d.shapeLinear(name, n, k, mode)
	if err != nil {
		return nil, err
	}
	if len(packed) != size {
		return nil, fmt.Errorf("opening packed %q: %d bytes, want %d: %w", name, len(packed), size, ErrPacked)
	}
	if uintptr(unsafe.Pointer(unsafe.SliceData(packed)))%packedAlign != 0 {
		return nil, fmt.Errorf("opening packed %q: its bytes are not aligned to %d: %w", name, packedAlign, ErrPacked)
	}
	l.hold(packed)
	l.sealed.Store(true)
	return l, nil
}
