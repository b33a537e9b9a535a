package cmd

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"strings"
)

// npyWriter writes a two-dimensional float32 array row by row in NumPy's .npy format, version 1.0: little-endian, in C
// order.
type npyWriter struct {
	w       io.Writer
	columns int
	left    int // rows to come
	buf     []byte
}

// newNPY writes the header of rows x columns values.
func newNPY(w io.Writer, rows, columns int) (*npyWriter, error) {
	head := fmt.Sprintf("{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d), }", rows, columns)
	// Magic, version, length and header end on a multiple of 64 bytes, with a newline.
	const before = 10
	head += strings.Repeat(" ", 63-(before+len(head))%64) + "\n"
	out := append([]byte("\x93NUMPY\x01\x00"), 0, 0)
	binary.LittleEndian.PutUint16(out[8:], uint16(len(head)))
	_, err := w.Write(append(out, head...))
	return &npyWriter{w: w, columns: columns, left: rows}, err
}

// row writes the next row.
func (n *npyWriter) row(v []float32) error {
	if len(v) != n.columns || n.left == 0 {
		return fmt.Errorf("writing a row of %d values: %d rows of %d are left", len(v), n.left, n.columns)
	}
	n.left--
	n.buf = n.buf[:0]
	for _, x := range v {
		n.buf = binary.LittleEndian.AppendUint32(n.buf, math.Float32bits(x))
	}
	_, err := n.w.Write(n.buf)
	return err
}
