package units

import "fmt"

// topChunk is how many values a workgroup of top.comp takes, a power of two: twice as many as it keeps at most.
const topChunk = 2 * topThreads

const topThreads = 512

// top is OpTop: rounds of top.comp, each of which leaves the largest of every chunk, until a single chunk is left.
func (r *recording) top(i int) int {
	op := &r.prog.Ops[i]
	threads := min(topThreads, r.dev.info.MaxInvocations)
	s := shader{name: "top", constants: []uint32{uint32(threads), topChunk, uint32(op.TopK)}}
	in := read(r.tables())
	width := r.prog.Bufs[op.A].Width
	for round := 0; ; round++ {
		chunks := ceilDiv(width, topChunk)
		last := chunks == 1
		out := write(r.buffer(op.Dst)) // stands in where the shader writes nothing
		if !last {
			bytes := 8 * int64(r.rows) * int64(chunks) * int64(op.TopK)
			out = write(r.scratchBuf(fmt.Sprintf("top %d %d", i, round), bytes))
		}
		r.chained(s, pushConstants(width, i, boolConstant(round == 0), boolConstant(last)), chunks, r.rows, 1,
			read(r.buffer(op.A)), in, out, write(r.buffer(op.Dst)), shared(r.status()))
		if last {
			return 1
		}
		in, width = read(out.Binding), chunks*op.TopK
	}
}
