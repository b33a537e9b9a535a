package units

import (
	"encoding/binary"
	"fmt"
	"math"

	"dchain/units/vk"
)

// recording turns the operations of a program into the dispatches of one command buffer, for a batch of exactly rows rows
// none of which has more than context visible positions. The contract of a function in vulkanOps:
//
//   - It is called with the recording, the index of its operation in the program and what follows from there, and says how
//     many operations it has recorded: more than one where it merges neighbours.
//   - It takes buffers, parameters and scratch as bindings from the methods below and calls dispatch for each shader. Every
//     binding is wrapped in read, write or shared: a barrier is put between two dispatches only if one of them writes
//     what the other uses, so independent operations run side by side. Shaders of one row are recorded by chained instead.
//   - Nothing depends on positions or slots, which change from run to run while the recording stays: shaders read them
//     from rowsBuf ([rows]{uint slot, uint position}).
//   - A row that cannot be computed calls fail(op, row) of status.glsl with the index of its operation, writes what it
//     likes and must not go out of bounds; the run then ends with an OpError for the lowest operation and row.
//   - Push constants are appended with pushConstants; float specialisation constants are given as bits.
//
// Layouts: an F32 buffer is [rows][width] float32. For a Limbs buffer see shaders/limbs.glsl.
type recording struct {
	dev     *vulkanDevice
	exec    *vulkanExecutable
	prog    *Program
	rows    int
	context int // a bound of the visible positions of a row: a power of two times 64, at most the cache's context

	lane    *lane      // what the host shares with it
	follows bool       // In comes from the step before
	last    bool       // of Out the last row alone is copied down
	groups  []opGroup  // recorded together
	cuts    bool       // the list is cut after the copies up, and after each group
	cut     *recording // the same with cuts, for audits; made when needed
	profile bool       // a barrier and a timestamp follow each dispatch
	names   []string   // of the dispatches, where they are profiled
	cmds    *vk.Commands
	scratch *recordingScratch
	pending []access // since the last barrier
	chain   chain
	// compile, where it is not nil, takes the shaders of the dispatches, and nothing is recorded.
	compile func(s shader, bindings, pushBytes int)
	err     error // the first one
}

// opGroup is the operations [first, end), which one function recorded.
type opGroup struct{ first, end int }

// free releases what the recording holds; it must not be running.
func (r *recording) free() {
	if r.cut != nil {
		r.cut.cmds.Free() // their scratch is the same
	}
	r.cmds.Free()
	r.scratch.free()
}

// access is a binding and what a dispatch does with it.
type access struct {
	vk.Binding
	writes bool
	shared bool // safe at the same time as any other use
	early  bool // read before a chained dispatch awaits the one before it
}

func read(b vk.Binding) access { return access{Binding: b} }

// write is for bindings that are written, or read and written.
func write(b vk.Binding) access { return access{Binding: b, writes: true} }

// shared is for bindings that dispatches may write at the same time: atomics.
func shared(b vk.Binding) access { return access{Binding: b, shared: true} }

// bytes is how much is bound.
func (a *access) bytes() int64 {
	if a.Size != 0 {
		return a.Size
	}
	return a.Buffer.Size() - a.Offset
}

func (a *access) conflicts(b *access) bool {
	if a.Buffer != b.Buffer || a.shared || b.shared || !(a.writes || b.writes) {
		return false
	}
	return (a.Size == 0 || b.Offset < a.Offset+a.Size) && (b.Size == 0 || a.Offset < b.Offset+b.Size)
}

// whole is all of a buffer.
func whole(b *vk.Buffer) vk.Binding { return vk.Binding{Buffer: b} }

// buffer is an activation buffer of the program.
func (r *recording) buffer(b Buf) vk.Binding { return whole(r.exec.bufs[b]) }

// vector is a parameter; something harmless for nil, since every binding of a shader must be bound.
func (r *recording) vector(v Vector) vk.Binding {
	if v == nil || v.Len() == 0 {
		return r.tables()
	}
	return whole(v.(*vulkanVector).buf)
}

// tables are the committed tables (numerics.glsl).
func (r *recording) tables() vk.Binding { return whole(r.dev.tables) }

// status is what status.glsl describes, to be bound as shared.
func (r *recording) status() vk.Binding { return vk.Binding{Buffer: r.exec.step, Size: r.exec.rowsAt} }

// rowsBuf is the slot and position of each row (rows.glsl).
func (r *recording) rowsBuf() vk.Binding {
	return vk.Binding{Buffer: r.exec.step, Offset: r.exec.rowsAt, Size: 8 * int64(r.rows)}
}

// scratchBuf is memory of this recording, the same for equal names; its size is that of the first request.
func (r *recording) scratchBuf(name string, bytes int64) vk.Binding {
	b, err := r.scratch.take(r.dev, name, bytes)
	if err != nil {
		r.fail(err)
		return r.tables()
	}
	if bytes > b.Size() {
		panic(fmt.Sprintf("units: scratch %q of %d bytes, then of %d", name, b.Size(), bytes))
	}
	return vk.Binding{Buffer: b, Size: bytes}
}

// fail ends the recording with an error, the first of several.
func (r *recording) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// shader names a pipeline: the shader, a required subgroup size or 0, and specialisation constants from 0. Those that look at which
// invocations of a workgroup are a subgroup require its size: a device may run others with fewer invocations than it says.
type shader struct {
	name      string
	subgroup  int
	constants []uint32
}

func (s *shader) key() string { return fmt.Sprint(s.name, s.subgroup, s.constants) }

// dispatch adds x * y * z workgroups with the bindings 0, 1, ..., after a barrier if it needs one.
func (r *recording) dispatch(s shader, push []byte, x, y, z int, uses ...access) {
	r.chain.last = 0
	r.put(s, r.needsBarrier(uses), push, x, y, z, uses)
}

// put is dispatch, with a barrier before it or not.
func (r *recording) put(s shader, barrier bool, push []byte, x, y, z int, uses []access) {
	if r.err != nil {
		return
	}
	if most := r.dev.info.MaxGroups; x > most[0] || y > most[1] || z > most[2] {
		r.fail(fmt.Errorf("%d x %d x %d workgroups of %s, %s allows %v", x, y, z, s.name, r.dev.info.Name, most))
		return
	}
	for i := range uses {
		if n := uses[i].bytes(); n > r.dev.info.MaxRange {
			r.fail(fmt.Errorf("%d bytes in a buffer of %s, %s binds at most %d", n, s.name, r.dev.info.Name, r.dev.info.MaxRange))
			return
		}
	}
	if r.compile != nil {
		r.compile(s, len(uses), len(push))
		return
	}
	p, err := r.dev.pipeline(s, len(uses), len(push))
	if err != nil {
		r.fail(err)
		return
	}
	if barrier {
		r.cmds.Barrier()
		r.pending = r.pending[:0]
	}
	r.pending = append(r.pending, uses...)
	bindings := make([]vk.Binding, len(uses))
	for i, u := range uses {
		bindings[i] = u.Binding
	}
	r.cmds.Dispatch(p, push, x, y, z, bindings...)
	if r.profile {
		r.names = append(r.names, fmt.Sprint(s.name, " ", x, "x", y, "x", z))
		r.cmds.Barrier()
		r.cmds.Timestamp()
	}
}

func (r *recording) needsBarrier(uses []access) bool {
	for i := range r.pending {
		for j := range uses {
			if r.pending[i].conflicts(&uses[j]) {
				return true
			}
		}
	}
	return false
}

// pushConstants packs integers, truncated to 32 bits, and float32 in order.
func pushConstants(values ...any) []byte {
	var b []byte
	for _, v := range values {
		switch v := v.(type) {
		case int:
			b = binary.LittleEndian.AppendUint32(b, uint32(v))
		case uint32:
			b = binary.LittleEndian.AppendUint32(b, v)
		case float32:
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
		default:
			panic(fmt.Sprintf("units: push constant of type %T", v))
		}
	}
	return b
}

// boolConstant is a specialisation constant.
func boolConstant(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}

// ceilDiv is n / by, rounded up.
func ceilDiv(n, by int) int { return (n + by - 1) / by }
