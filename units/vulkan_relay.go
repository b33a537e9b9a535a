package units

import "dchain/units/vk"

// relayed is how many bytes of rows relay.comp passes on. More are copied: a device may have a quicker way for many.
const relayed = 64 << 10

// passage is rows on their way between buffers, from and to so many values of each.
type passage struct {
	src, dst       *vk.Buffer
	srcAt, dstAt   int64 // bytes
	rows, from, to int
}

// takeOver records what comes before the operations: status, counters and rows of the step, and its In, from the host or from Out
// of the step before.
func (r *recording) takeOver() {
	e, in := r.exec, r.prog.Bufs[r.prog.In]
	words := e.rowsAt + 8*int64(r.rows)
	p := passage{src: r.lane.up, srcAt: int64(e.inOffset()), dst: e.bufs[r.prog.In], rows: r.rows, from: in.Width, to: in.Width}
	if r.follows {
		p.src, p.srcAt, p.from = e.bufs[r.prog.Out], 0, r.prog.Bufs[r.prog.Out].Width
	}
	r.pass(r.lane.up, e.step, words, p)
}

// handOut records what comes after them: status and Out, or the last row of it, go to the host.
func (r *recording) handOut() {
	e, width := r.exec, r.prog.Bufs[r.prog.Out].Width
	p := passage{src: e.bufs[r.prog.Out], dst: r.lane.down, dstAt: downOut, rows: r.rows, from: width, to: width}
	if r.last {
		p.srcAt, p.rows = 4*int64(width)*int64(r.rows-1), 1
	}
	r.pass(e.step, r.lane.down, 4*statusWords, p)
}

// pass records that bytes from the beginning of src go to that of dst, and rows along with them.
func (r *recording) pass(src, dst *vk.Buffer, bytes int64, p passage) {
	values := p.rows * p.to
	if p.src == p.dst {
		values = 0
	}
	part := func(b *vk.Buffer, at int64, values int) vk.Binding {
		return vk.Binding{Buffer: b, Size: max(4, at+4*int64(values))}
	}
	bindings := []vk.Binding{part(src, bytes, 0), part(dst, bytes, 0), part(p.src, p.srcAt, values/p.to*p.from), part(p.dst, p.dstAt, values)}
	most := int64(4 * values)
	for _, b := range bindings {
		if b.Size > r.dev.info.MaxRange {
			most = relayed + 1
		}
	}
	if most > relayed && p.from == p.to {
		r.cmds.Copy(dst, 0, src, 0, bytes)
		r.cmds.Copy(p.dst, p.dstAt, p.src, p.srcAt, int64(4*values))
		return
	}
	const threads = 64
	push := pushConstants(int(bytes/4), values, p.from, p.to, int(p.srcAt/4), int(p.dstAt/4))
	pipeline, err := r.dev.pipeline(shader{name: "relay", constants: []uint32{threads}}, len(bindings), len(push))
	if err != nil {
		r.fail(err)
		return
	}
	groups := min(ceilDiv(max(int(bytes/4), values), threads), r.dev.info.MaxGroups[0])
	r.cmds.Dispatch(pipeline, push, groups, 1, 1, bindings...)
}
