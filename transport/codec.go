package transport

import (
	"encoding/binary"
	"fmt"
	"math"
	"unicode/utf8"
)

// maxString is the longest string a frame can hold, in bytes: its length travels as u16.
const maxString = math.MaxUint16

// encoder appends little-endian fields to a buffer and keeps the first error.
type encoder struct {
	b   []byte
	err error
}

func (e *encoder) u8(v uint8)   { e.b = append(e.b, v) }
func (e *encoder) u16(v uint16) { e.b = binary.LittleEndian.AppendUint16(e.b, v) }
func (e *encoder) u32(v uint32) { e.b = binary.LittleEndian.AppendUint32(e.b, v) }
func (e *encoder) u64(v uint64) { e.b = binary.LittleEndian.AppendUint64(e.b, v) }
func (e *encoder) i32(v int32)  { e.u32(uint32(v)) }
func (e *encoder) raw(v []byte) { e.b = append(e.b, v...) }

func (e *encoder) flag(v bool) {
	if v {
		e.u8(1)
	} else {
		e.u8(0)
	}
}

// f64 appends a number that must be finite and not negative: every float64 on the wire is a measure.
func (e *encoder) f64(field string, v float64) {
	if !measure(v) {
		e.fail(field, fmt.Errorf("%v is not a finite number of at least 0", v))
		return
	}
	e.u64(math.Float64bits(v))
}

func (e *encoder) str(field, s string) {
	switch {
	case len(s) > maxString:
		e.fail(field, fmt.Errorf("%d bytes, at most %d fit", len(s), maxString))
	case !utf8.ValidString(s):
		e.fail(field, errNotUTF8)
	default:
		e.u16(uint16(len(s)))
		e.b = append(e.b, s...)
	}
}

func (e *encoder) fail(field string, err error) {
	if e.err == nil {
		e.err = fmt.Errorf("field %s: %w", field, err)
	}
}

// decoder takes fields off the front of a buffer. After the first error every field reads as zero.
type decoder struct {
	b   []byte
	err error
}

// take returns the next n bytes, or nil after an error.
func (d *decoder) take(field string, n int) []byte {
	if d.err != nil {
		return nil
	}
	if n > len(d.b) {
		d.fail(field, fmt.Errorf("needs %d bytes, %d are left", n, len(d.b)))
		return nil
	}
	p := d.b[:n]
	d.b = d.b[n:]
	return p
}

func (d *decoder) fail(field string, err error) {
	if d.err == nil {
		d.err = fmt.Errorf("field %s: %w", field, err)
	}
}

func (d *decoder) u8(field string) uint8 {
	if p := d.take(field, 1); p != nil {
		return p[0]
	}
	return 0
}

func (d *decoder) u16(field string) uint16 {
	if p := d.take(field, 2); p != nil {
		return binary.LittleEndian.Uint16(p)
	}
	return 0
}

func (d *decoder) u32(field string) uint32 {
	if p := d.take(field, 4); p != nil {
		return binary.LittleEndian.Uint32(p)
	}
	return 0
}

func (d *decoder) u64(field string) uint64 {
	if p := d.take(field, 8); p != nil {
		return binary.LittleEndian.Uint64(p)
	}
	return 0
}

func (d *decoder) i32(field string) int32 { return int32(d.u32(field)) }

func (d *decoder) raw(field string, dst []byte) { copy(dst, d.take(field, len(dst))) }

func (d *decoder) flag(field string) bool {
	v := d.u8(field)
	if v > 1 {
		d.fail(field, fmt.Errorf("%d is neither 0 nor 1", v))
	}
	return v == 1
}

func (d *decoder) f64(field string) float64 {
	v := math.Float64frombits(d.u64(field))
	if !measure(v) {
		d.fail(field, fmt.Errorf("%v is not a finite number of at least 0", v))
		return 0
	}
	return v
}

func (d *decoder) str(field string) string {
	p := d.take(field, int(d.u16(field)))
	if !utf8.Valid(p) {
		d.fail(field, errNotUTF8)
		return ""
	}
	return string(p)
}

// end checks that nothing is left over.
func (d *decoder) end() error {
	if d.err == nil && len(d.b) > 0 {
		d.err = fmt.Errorf("%d bytes too many", len(d.b))
	}
	return d.err
}

// measure reports whether v is finite, not negative and not the negative zero.
func measure(v float64) bool {
	return !math.Signbit(v) && !math.IsNaN(v) && !math.IsInf(v, 0)
}
