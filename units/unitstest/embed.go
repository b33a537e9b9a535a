package unitstest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"dchain/units"
)

// tableValue is a stored value and its bytes, of a type. Every pattern of 16 bits is one of f16 and of bf16.
func tableValue(typ units.TableType, bits uint32) (float64, []byte) {
	switch typ {
	case units.TableF16:
		sign, exponent, mantissa := 1-2*float64(bits>>15&1), int(bits>>10&31), float64(bits&1023)
		v := math.Ldexp(sign*(1024+mantissa), exponent-25)
		if exponent == 0 {
			v = math.Ldexp(sign*mantissa, -24)
		}
		return v, binary.LittleEndian.AppendUint16(nil, uint16(bits))
	case units.TableBF16:
		return float64(math.Float32frombits(bits << 16)), binary.LittleEndian.AppendUint16(nil, uint16(bits))
	}
	return float64(math.Float32frombits(bits)), binary.LittleEndian.AppendUint32(nil, bits)
}

// testEmbed looks up every finite value of 16 bits, in rows of even and odd widths, and random ones of 32.
func testEmbed(t *testing.T, dev units.Device) {
	for _, typ := range []units.TableType{units.TableBF16, units.TableF16, units.TableF32} {
		for _, width := range []int{1, 7, 300, 1024} {
			t.Run(fmt.Sprintf("%v %d", typ, width), func(t *testing.T) {
				n := 64 * 1024 / max(width, 64)
				b := newBench(t, dev, uint64(width))
				values, stored := make([]f32, n*width), []byte(nil)
				for i := range values {
					bits := uint32(i)
					if typ == units.TableF32 {
						bits = b.rng.Uint32()
					}
					v, raw := tableValue(typ, bits)
					if exponent := uint32(math.Float32bits(f32(v)) >> 23 & 0xff); exponent > 0xf0 || typ == units.TableF16 && bits>>10&31 == 31 {
						v, raw = tableValue(typ, 1)
					}
					values[i] = f32(v)
					stored = append(stored, raw...)
				}
				table, err := dev.NewTable("words", units.TableSpec{Rows: n, Width: width, Type: typ})
				b.must(err)
				each := width * typ.Bytes()
				for first := 0; first < n; {
					count := min(n-first, 1+b.rng.IntN(n))
					b.must(table.PutRows(first, stored[first*each:(first+count)*each]))
					first += count
				}
				b.must(table.Finish())
				if table.Spec() != (units.TableSpec{Rows: n, Width: width, Type: typ}) || table.Bytes() < int64(len(stored)) {
					t.Errorf("%+v takes %d bytes", table.Spec(), table.Bytes())
				}
				b.tables = map[units.Table][]f32{table: values}
				in, plain, scaled := b.buf(units.F32, 2), b.buf(units.F32, width), b.buf(units.F32, width)
				b.op(units.Op{Kind: units.OpEmbed, Dst: plain, A: in, B: units.None, Table: table})
				b.op(units.Op{Kind: units.OpEmbed, Dst: scaled, A: in, B: units.None, Table: table, Scale: 27.7})
				var ids []f32
				for _, at := range b.rng.Perm(n) {
					ids = append(ids, f32(at), -1) // what follows the first value is not looked at
				}
				b.everyBuffer(positions(0, 0, n), ids)
				b.everyBuffer(positions(0, 0, 1), []f32{f32(n - 1), 0})
				b.everyBuffer(positions(0, 0, 3), []f32{f32(n - 1), 0, 0, 0, f32(n / 2), 0})
			})
		}
	}
}

// testEmbedErrors has ids that are none, tables that are not whole and programs that are refused.
func testEmbedErrors(t *testing.T, dev units.Device) {
	const n, width = 5, 6
	spec := units.TableSpec{Rows: n, Width: width, Type: units.TableF32}
	table, err := dev.NewTable("the table", spec)
	if err != nil {
		t.Fatal(err)
	}
	compile := func(op units.Op, bufs ...units.BufSpec) (units.Executable, error) {
		op.Kind, op.B, op.Table, op.Layer = units.OpEmbed, units.None, table, 7
		return dev.Compile(units.Program{In: 0, Out: 1, Bufs: bufs, Ops: []units.Op{op}})
	}
	one, row := units.BufSpec{Width: 1}, units.BufSpec{Width: width}
	if err := table.Finish(); err == nil || !strings.Contains(err.Error(), "the table") {
		t.Errorf("an empty table: %v", err)
	}
	if _, err := compile(units.Op{Dst: 1}, one, row); err == nil || !strings.Contains(err.Error(), "the table") {
		t.Errorf("a program with an empty table: %v", err)
	}
	for _, c := range []struct{ first, bytes int }{{0, 4 * (width*n + 1)}, {0, 3}, {-1, 4 * width}, {n, 4 * width}, {1, 4 * width * n}} {
		if err := table.PutRows(c.first, make([]byte, c.bytes)); err == nil {
			t.Errorf("%d bytes at row %d: no error", c.bytes, c.first)
		}
	}
	if err := table.PutRows(0, make([]byte, 4*width*n)); err != nil {
		t.Fatal(err)
	}
	if err := table.Finish(); err != nil {
		t.Fatal(err)
	}
	if err := table.PutRows(0, make([]byte, 4*width)); err == nil {
		t.Error("rows of a finished table: no error")
	}
	e, err := compile(units.Op{Dst: 1}, one, row)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []float64{n, -1, 1.5, 0.999, math.Copysign(0, -1), 1e-40, 1e30, math.Inf(1), math.Inf(-1), math.NaN()} {
		var oe *units.OpError
		err := e.Run(positions(0, 0, 3), []f32{n - 1, f32(id), 0}, make([]f32, 3*width))
		if !errors.As(err, &oe) || oe.Op != units.OpEmbed || oe.Layer != 7 || oe.Row != 1 || !strings.Contains(err.Error(), "outside the table of 5 rows") {
			t.Errorf("id %v: %v", id, err)
		}
	}
	if _, err := compile(units.Op{Dst: 1, Scale: f32(math.Inf(1))}, one, row); err == nil {
		t.Error("an infinite scale is accepted")
	}
	if _, err := compile(units.Op{Dst: 1}, one, units.BufSpec{Width: width - 1}); err == nil {
		t.Error("a row in too narrow a buffer is accepted")
	}
	if _, err := compile(units.Op{Dst: 0}, row, row); err == nil {
		t.Error("a row in the place of its id is accepted")
	}
	for _, s := range []units.TableSpec{{Width: 1}, {Rows: 1}, {Rows: 1, Width: 1, Type: 3}, {Rows: 1<<24 + 1, Width: 1}} {
		if _, err := dev.NewTable("odd", s); err == nil {
			t.Errorf("a table of %+v is accepted", s)
		}
	}
	if err := table.Close(); err != nil {
		t.Error(err)
	}
}
