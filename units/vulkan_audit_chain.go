package units

import (
	"encoding/binary"
	"math"

	"dchain/units/vk"
)

// Audits of chained dispatches (shaders/chain.glsl). The operations that are recomputed are those of the recording that is cut
// between groups, which has barriers. All other steps of one row execute the chained recording, in which a dispatch that reads
// before the one before it has written would give wrong bits. So an audited step executes that, too, and what it puts out must be
// the same. It comes first: after the other it would find the right values where it reads too early. Both store the same keys
// and values.

// chainAuditEvery says of how many audits of chained steps one executes the chained recording. That doubles the device's time for
// the step. It need not be all of them, as one sees the whole chain, where it takes hundreds to recompute every dispatch once.
const chainAuditEvery = 4

// chainAudit compares the chained recording of an audited step with the one that has barriers.
type chainAudit struct {
	audits  uint64 // of chained steps
	chained bool   // the step under way is one
	on      bool   // and executes both recordings

	words, out copied // status words and Out after the chained one
	in         copied // In from the step before, which Out of the chained one overwrites; nothing where it is from the host
}

// plan lists what is read of the chained recording.
func (c *chainAudit) plan(a *vulkanAuditor, whole *recording) {
	c.chained = whole.chain.taken > 0
	c.on = c.chained && (a.every == 1 || c.audits%chainAuditEvery == 0)
	if !c.on {
		return
	}
	p := &a.e.prog
	out := a.e.bufs[p.Out]
	c.words, c.out, c.in = a.place(a.e.step, 0, 4*statusWords), a.place(out, 0, 4*int64(p.Bufs[p.Out].Width)), copied{}
	if whole.follows {
		c.in = a.place(out, 0, 4*int64(p.Bufs[p.In].Width))
	}
}

// lists are executed before the recording with cuts: the chained one and copies around it, or none.
func (c *chainAudit) lists(a *vulkanAuditor, whole *recording) ([]*vk.Commands, error) {
	if !c.on {
		return nil, nil
	}
	aside, err := a.save(c.words, c.out)
	if err != nil || c.in.buf == nil {
		return []*vk.Commands{whole.cmds, aside}, err
	}
	keep, err := a.save(c.in)
	if err != nil {
		return nil, err
	}
	restore, err := a.restore(c.in)
	return []*vk.Commands{keep, whole.cmds, aside, restore}, err
}

// verify holds the failure and Out of the chained recording against those of the other, which the lane has.
func (c *chainAudit) verify(a *vulkanAuditor, l *lane) error {
	if c.chained {
		c.audits++
	}
	if !c.on {
		return nil
	}
	words, down, p := a.bytes(c.words), l.down.Bytes(), &a.e.prog
	if stalled(words) {
		a.e.dev.unchain() // what the other has computed is right all the same
		return nil
	}
	differ := func(op *Op, column int, got, want float64) error {
		return &AuditError{Op: op.Kind, Layer: op.Layer, Column: column, Got: got, Want: want, Chained: true}
	}
	switch got, want := binary.LittleEndian.Uint32(words), binary.LittleEndian.Uint32(down); {
	case got < want: // that operation fails here alone
		return differ(&p.Ops[got>>16], -1, 1, 0)
	case want < got:
		return differ(&p.Ops[want>>16], -1, 0, 1)
	case want != noFailure: // Out is anything
		return nil
	}
	got, want := floats32(a.bytes(c.out)), floats32(down[downOut:][:c.out.len])
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			op := p.lastWriter()
			return differ(&op, i, float64(got[i]), float64(want[i]))
		}
	}
	return nil
}
