package units

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// tableRows is the part of a table that no device does in its own way.
type tableRows struct {
	loadedRows
	spec TableSpec
}

// init checks the shape.
func (t *tableRows) init(name string, s TableSpec) error {
	if s.Rows < 1 || s.Rows > maxTopWidth || s.Width < 1 || s.Width > maxTopWidth {
		return fmt.Errorf("reserving %q: %d rows of %d, want 1 to %d of each", name, s.Rows, s.Width, maxTopWidth)
	}
	if s.Type > TableF32 {
		return fmt.Errorf("reserving %q: unknown type %d", name, s.Type)
	}
	t.expect(name, s.Rows)
	t.spec = s
	return nil
}

func (t *tableRows) Spec() TableSpec { return t.spec }

func (t *tableRows) Finish() error { return t.seal() }

// storedBytes is what a row takes where it is loaded from.
func (t *tableRows) storedBytes() int { return t.spec.Width * t.spec.Type.Bytes() }

// count is how many rows a call of PutRows loads.
func (t *tableRows) count(first int, rows []byte) (int, error) {
	n := len(rows) / t.storedBytes()
	return n, t.check(first, n, len(rows), t.storedBytes())
}

// cpuTable is a table in memory: [rows][width].
type cpuTable struct {
	tableRows
	dev    *cpuDevice
	region *region
	data   []uint8
}

func (d *cpuDevice) NewTable(name string, spec TableSpec) (Table, error) {
	t := &cpuTable{dev: d}
	err := t.init(name, spec)
	if err != nil {
		return nil, err
	}
	if t.data, t.region, err = d.memory.bytes(spec.Rows * t.storedBytes()); err != nil {
		return nil, fmt.Errorf("reserving %q: %w", name, err)
	}
	return t, nil
}

func (t *cpuTable) PutRows(first int, rows []byte) error {
	count, err := t.count(first, rows)
	if err != nil {
		return err
	}
	copy(t.data[first*t.storedBytes():], rows)
	for r := range count {
		t.mark(first + r)
	}
	return nil
}

func (t *cpuTable) owner() Device { return t.dev }

func (t *cpuTable) Bytes() int64 { return int64(len(t.data)) }

func (t *cpuTable) Close() error {
	if t.region != nil {
		t.region.release()
	}
	t.region, t.data = nil, nil
	return nil
}

// tableIndex is the row that the value of a buffer is the index of; false if the table has none.
func tableIndex(id float32, rows int) (int, bool) {
	// Of the bits, since -0 is no index.
	if math.Float32bits(id) > math.Float32bits(float32(rows-1)) || id != float32(int(id)) {
		return 0, false
	}
	return int(id), true
}

// embedRow is OpEmbed for row r.
func (st *state) embedRow(op *Op, r int) {
	t := op.Table.(*cpuTable)
	at, ok := tableIndex(st.f32[op.A][r*st.prog.Bufs[op.A].Width], t.n)
	if !ok {
		st.fail(op, r, op.failure())
		return
	}
	w := t.spec.Width
	t.spec.Type.row(st.f32[op.Dst][r*w:(r+1)*w], t.data[at*t.storedBytes():], op.Scale)
}

// row is a row of a table, times scale unless that is 0.
func (t TableType) row(dst []float32, stored []byte, scale float32) {
	for i := range dst {
		v := flush(t.value(stored, i))
		if scale != 0 {
			v = flush(v * scale)
		}
		dst[i] = v
	}
}

// value is value i of a row.
func (t TableType) value(stored []byte, i int) float32 {
	switch t {
	case TableBF16:
		return math.Float32frombits(uint32(binary.LittleEndian.Uint16(stored[2*i:])) << 16)
	case TableF16:
		return fromF16(uint32(binary.LittleEndian.Uint16(stored[2*i:])))
	}
	return math.Float32frombits(binary.LittleEndian.Uint32(stored[4*i:]))
}

// fromF16 is exact, also for subnormals.
func fromF16(h uint32) float32 {
	bits, mantissa := h&0x8000<<16, h&0x3ff
	switch exponent := h >> 10 & 0x1f; exponent {
	case 0:
		return math.Float32frombits(math.Float32bits(float32(mantissa)*pow2(-24)) | bits)
	case 0x1f:
		return math.Float32frombits(bits | infBits | mantissa<<13)
	default:
		return math.Float32frombits(bits | (exponent+112)<<23 | mantissa<<13)
	}
}

// failure says what is wrong with a row that an operation could not compute.
func (op *Op) failure() error {
	if op.Kind == OpEmbed {
		return fmt.Errorf("its id is outside the table of %d rows", op.Table.Spec().Rows)
	}
	return errNotFinite
}

func (c *checker) embed(op *Op) error {
	t, ok := op.Table.(tableHandle)
	if !ok || t.owner() != c.dev {
		return errors.New("table: missing, or of another device")
	}
	if !t.finished() {
		return fmt.Errorf("table %q is not finished", t.label())
	}
	if op.Scale-op.Scale != 0 {
		return fmt.Errorf("scale %v", op.Scale)
	}
	if _, err := c.read("a", op.A, F32, 0); err != nil {
		return err
	}
	if op.A == op.Dst {
		return errors.New("dst: rows of a table cannot take the place of their ids")
	}
	_, err := c.buf("dst", op.Dst, F32, t.Spec().Width)
	return err
}
