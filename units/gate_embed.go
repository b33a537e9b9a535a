package units

import (
	"encoding/binary"
	"fmt"
)

// embeds gates OpEmbed for each type of table, without and with a factor, on batches of many ids and of one.
func (g *gate) embeds(width int) error {
	const rows = 37
	for _, typ := range []TableType{TableBF16, TableF16, TableF32} {
		for _, scale := range []float32{0, 45.254834} {
			shape := fmt.Sprintf("rows of %d, %v, times %v", width, typ, scale)
			e, err := g.pair(func(d Device, s *gateSeries) (Program, error) {
				t, err := s.table(d, TableSpec{Rows: rows, Width: width, Type: typ})
				return Program{In: 0, Out: 1, Bufs: []BufSpec{{F32, 1}, {F32, width}},
					Ops: []Op{{Kind: OpEmbed, Dst: 1, A: 0, B: None, Table: t, Scale: scale}}}, err
			}, make([]Row, rows), make([]Row, 1))
			if err == nil {
				err = e.ready()
			}
			if err != nil {
				return fmt.Errorf("%s %s: %w", OpEmbed, shape, err)
			}
			ids := make([]float32, rows)
			for i := range ids {
				ids[i] = float32((i*5 + rows - 1) % rows)
			}
			for _, in := range [][]float32{ids, ids[:1], ids[1:2]} {
				batch, got, want := make([]Row, len(in)), make([]float32, len(in)*width), make([]float32, len(in)*width)
				if err := e.ref.Run(batch, in, want); err != nil {
					return fmt.Errorf("%s %s, reference: %w", OpEmbed, shape, err)
				}
				if err := g.run(e.dev, batch, in, got); err != nil {
					return fmt.Errorf("%s %s: %w", OpEmbed, shape, err)
				}
				if err := g.compare(OpEmbed, shape, 0, got, want, width); err != nil {
					if wrong, ok := err.(*GateError); ok {
						wrong.Input = fmt.Sprintf("id %v", in[wrong.Row])
					}
					return err
				}
				g.checks = append(g.checks, GateCheck{OpEmbed, shape, len(got)})
			}
		}
	}
	return nil
}

// table loads values of every magnitude, subnormals included, that are finite a hundred times over.
func (s *gateSeries) table(d Device, spec TableSpec) (Table, error) {
	t, err := d.NewTable("gate", spec)
	if err != nil {
		return nil, err
	}
	var row []byte
	for r := range spec.Rows {
		row = row[:0]
		for range spec.Width {
			s.next()
			bits := uint32(*s >> 32)
			if spec.Type == TableF16 {
				if bits&0x7c00 == 0x7c00 {
					bits &^= 0x4000
				}
				row = binary.LittleEndian.AppendUint16(row, uint16(bits))
				continue
			}
			if bits>>23&0xff > 0xf0 {
				bits &^= 1 << 30
			}
			if spec.Type == TableBF16 {
				row = binary.LittleEndian.AppendUint16(row, uint16(bits>>16))
			} else {
				row = binary.LittleEndian.AppendUint32(row, bits)
			}
		}
		if err := t.PutRows(r, row); err != nil {
			return nil, err
		}
	}
	return t, t.Finish()
}
