package transport

import (
	"errors"
	"fmt"
)

// Token announces a token the head has picked, so that every stage can show the output.
type Token struct {
	Seq      int32
	TokenIdx int32 // its position
	ID       int32
	Text     string
}

func (*Token) Kind() Kind { return KindToken }

func (t *Token) encode(e *encoder) {
	e.i32(t.Seq)
	e.i32(t.TokenIdx)
	e.i32(t.ID)
	e.str("Text", t.Text)
}

func (t *Token) decode(d *decoder) {
	t.Seq = d.i32("Seq")
	t.TokenIdx = d.i32("TokenIdx")
	t.ID = d.i32("ID")
	t.Text = d.str("Text")
}

// Finished ends a session: the head sends it, and the stage frees the session and answers with its own counts.
type Finished struct {
	Seq           int32
	Reason        string
	Steps         uint32 // activations handled
	ComputeMicros uint64 // time spent on them, in microseconds
	Rows          uint32 // positions handled
}

func (*Finished) Kind() Kind { return KindFinished }

func (f *Finished) encode(e *encoder) {
	e.i32(f.Seq)
	e.str("Reason", f.Reason)
	e.u32(f.Steps)
	e.u64(f.ComputeMicros)
	e.u32(f.Rows)
}

func (f *Finished) decode(d *decoder) {
	f.Seq = d.i32("Seq")
	f.Reason = d.str("Reason")
	f.Steps = d.u32("Steps")
	f.ComputeMicros = d.u64("ComputeMicros")
	f.Rows = d.u32("Rows")
}

// Receipt tells the head what a stage made of an activation. It is sent only when the Assignment asked for a Trace.
type Receipt struct {
	Seq      int32
	TokenIdx int32 // position of the first row
	Stage    int32
	Micros   uint32   // compute time
	Hashes   []uint64 // RowHash of every row of the result, at most MaxReceiptRows
}

// MaxReceiptRows is how many rows a Receipt can report.
const MaxReceiptRows = (MaxControl - kindSize - 20) / 8

func (*Receipt) Kind() Kind { return KindReceipt }

func (r *Receipt) encode(e *encoder) {
	e.i32(r.Seq)
	e.i32(r.TokenIdx)
	e.i32(r.Stage)
	e.u32(r.Micros)
	if len(r.Hashes) > MaxReceiptRows {
		e.fail("Hashes", fmt.Errorf("%d rows, at most %d fit", len(r.Hashes), MaxReceiptRows))
		return
	}
	e.u32(uint32(len(r.Hashes)))
	for _, h := range r.Hashes {
		e.u64(h)
	}
}

func (r *Receipt) decode(d *decoder) {
	r.Seq = d.i32("Seq")
	r.TokenIdx = d.i32("TokenIdx")
	r.Stage = d.i32("Stage")
	r.Micros = d.u32("Micros")
	n := d.u32("Hashes")
	if d.err == nil && uint64(n)*8 != uint64(len(d.b)) {
		d.fail("Hashes", errors.New("count does not fit the length"))
	}
	if d.err != nil || n == 0 {
		return
	}
	r.Hashes = make([]uint64, n)
	for i := range r.Hashes {
		r.Hashes[i] = d.u64("Hashes")
	}
}
