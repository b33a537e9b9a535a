package units

import (
	"fmt"

	"dchain/units/vk"
)

// vulkanTable is a table on the device, in parts of as many rows as one binding holds: each [rows][width], a row padded to words.
type vulkanTable struct {
	tableRows
	dev      *vulkanDevice
	rowBytes int
	perPart  int // rows, but for the last
	parts    []tablePart
}

type tablePart struct {
	first, count int // rows
	buf          *vk.Buffer
}

func (d *vulkanDevice) NewTable(name string, spec TableSpec) (Table, error) {
	t := &vulkanTable{dev: d}
	if err := t.init(name, spec); err != nil {
		return nil, err
	}
	t.rowBytes = padded(t.storedBytes(), 4)
	t.perPart = int(d.info.MaxRange / int64(t.rowBytes))
	if t.perPart == 0 {
		return nil, fmt.Errorf("reserving %q: a row of %d bytes, the device binds %d", name, t.rowBytes, d.info.MaxRange)
	}
	for first := 0; first < spec.Rows; first += t.perPart {
		p := tablePart{first: first, count: min(t.perPart, spec.Rows-first)}
		var err error
		if p.buf, err = d.buffer(int64(p.count)*int64(t.rowBytes), vk.Local); err != nil {
			t.Close()
			return nil, fmt.Errorf("reserving %q: %w", name, err)
		}
		t.parts = append(t.parts, p)
	}
	return t, nil
}

func (t *vulkanTable) PutRows(first int, rows []byte) error {
	count, err := t.count(first, rows)
	if err != nil {
		return err
	}
	stored := t.storedBytes()
	for done := 0; done < count; {
		p := &t.parts[(first+done)/t.perPart]
		at := first + done - p.first
		n := min(count-done, p.count-at)
		if err := p.buf.Write(int64(at)*int64(t.rowBytes), t.pad(rows[done*stored:(done+n)*stored])); err != nil {
			return fmt.Errorf("loading %q: %w", t.name, err)
		}
		done += n
	}
	for r := range count {
		t.mark(first + r)
	}
	return nil
}

// pad puts rows at whole words.
func (t *vulkanTable) pad(rows []byte) []byte {
	stored := t.storedBytes()
	if stored == t.rowBytes {
		return rows
	}
	b := make([]byte, len(rows)/stored*t.rowBytes)
	for r := range len(rows) / stored {
		copy(b[r*t.rowBytes:], rows[r*stored:(r+1)*stored])
	}
	return b
}

// row reads a row back.
func (t *vulkanTable) row(r int) ([]byte, error) {
	p := &t.parts[r/t.perPart]
	b := make([]byte, t.rowBytes)
	err := p.buf.Read(int64(r-p.first)*int64(t.rowBytes), b)
	return b, err
}

func (t *vulkanTable) owner() Device { return t.dev }

func (t *vulkanTable) Bytes() int64 {
	n := int64(0)
	for _, p := range t.parts {
		n += p.buf.Size()
	}
	return n
}

func (t *vulkanTable) Close() error {
	for _, p := range t.parts {
		t.dev.free(p.buf)
	}
	t.parts = nil
	return nil
}

// embedThreads is the size of a workgroup of embed.comp.
const embedThreads = 256

// embed is OpEmbed: a dispatch for each part of the table.
func (r *recording) embed(i int) int {
	op := &r.prog.Ops[i]
	t := op.Table.(*vulkanTable)
	words := t.rowBytes / 4
	factor := op.Scale
	if factor == 0 {
		factor = 1
	}
	s := shader{name: "embed", constants: []uint32{embedThreads, uint32(t.spec.Type)}}
	for _, p := range t.parts {
		push := pushConstants(r.prog.Bufs[op.A].Width, t.n, p.first, p.count, t.spec.Width, words, i, factor)
		r.chained(s, push, min(ceilDiv(words, embedThreads), r.dev.info.MaxGroups[0]), r.rows, 1,
			read(r.buffer(op.A)), read(whole(p.buf)), write(r.buffer(op.Dst)), shared(r.status()))
	}
	return 1
}

// embed recomputes the audited row from what the device holds of the table.
func (a *vulkanAuditor) embed(op *Op) error {
	t := op.Table.(*vulkanTable)
	at, ok := tableIndex(a.st.f32[op.A][0], t.n)
	if !ok {
		return nil // the operation has reported it
	}
	row, err := t.row(at)
	if err == nil {
		t.spec.Type.row(a.st.f32[op.Dst], row, op.Scale)
	}
	return err
}
