package units

import (
	"fmt"
	"math/bits"
	"slices"

	"dchain/units/vk"
)

// Attention on a Vulkan device: shaders/attend.glsl describes its passes.

// Limits of the ways attention is computed. Tests lower them.
var (
	// tiledRows is the number of rows from which rows read them together too: a batch of as many is a prompt.
	tiledRows = 128
	// attendScratch bounds the bytes of a scratch buffer; the rows of a batch are taken a part at a time.
	attendScratch = int64(256 << 20)
	// attendGroups is how many workgroups the sums of values are spread over, if the context has as many parts; matrixGroups
	// the same on matrices.
	attendGroups, matrixGroups = 4096, 512
	// matrixPart is how many blocks of the context a workgroup of attend_scores_matrix.comp takes, for one maximum.
	matrixPart = 8
)

// attendTiled has the shaders for matrices, and their tiles, by dot products: for tests, on devices without matrices.
var attendTiled = false

const (
	attendTile = 8  // queries that share keys and values
	matrixTile = 64 // the same on matrices

	tableTile   = 2    // the same where units are tables, whose code is long
	attendChunk = 1024 // positions of a workgroup of attend_weights.comp
	weighUnit   = 32   // its invocations for each head
	weighHeads  = 8    // and the heads it has at most
)

// attention is one OpAttend while it is recorded.
type attention struct {
	op        *Op
	index     int
	cache     *vulkanCache
	isShort   bool
	isGrouped bool
	matrices  string // the ending of the names of shaders on matrices; "" for others
	stride    int    // positions for which a row and head has room
	span      int    // the same in shared memory: a power of two, so that there are few shaders to gate
	chunks    int
	part      int // blocks of the context for each maximum of scores
	tileHeads int
	tileRows  int
	splits    int
	rows      int // at a time

	queries, scores, maxima, partials, totals vk.Binding
}

// attend is OpAttend.
func (r *recording) attend(i int) int {
	a := r.newAttention(i)
	r.headRows(a.cache, noStore, a, nil, nil)
	a.run(r)
	return 1
}

// attendSteps are the rows from which on a batch is a prompt, the contexts, each of which has a shader of its own for a short
// batch, the last being beyond those, and the context up to which a batch of many sessions has one.
func (d *vulkanDevice) attendSteps() (rows int, contexts []int, crowd int) {
	for n := blockPositions; n < shortSpan && !d.plain; n *= 2 {
		contexts = append(contexts, n)
	}
	return tiledRows, append(contexts, shortSpan, shortSpan+blockPositions), groupSpan
}

// newAttention plans the OpAttend at index i and reserves its scratch memory.
func (r *recording) newAttention(i int) *attention {
	op := &r.prog.Ops[i]
	a := &attention{op: op, index: i, cache: r.prog.Cache.(*vulkanCache), tileRows: 1}
	a.stride = padded(r.context, blockPositions)
	if op.Window > 0 {
		// A window that begins within a block needs the rest of the block too.
		a.stride = min(a.stride, padded(op.Window+blockPositions-1, blockPositions))
	}
	a.span = 1 << bits.Len(uint(a.stride-1))
	if r.dev.plain { // to which the size of shared memory is all one
		a.span = max(a.span, shortSpan)
	}
	a.chunks = ceilDiv(a.stride, attendChunk)
	tile, groups := attendTile, attendGroups
	a.part = 1
	switch {
	case r.rows >= tiledRows && attendTiled:
		a.matrices = "_tiled"
	case r.rows >= tiledRows && r.dev.info.Subgroup == 32 && r.dev.matrix:
		a.matrices = "_matrix"
	case r.dev.tier == VulkanLUT:
		tile = tableTile
	}
	if a.matrices != "" {
		tile, groups, a.part = matrixTile, matrixGroups, matrixPart
	}
	a.tileHeads = min(op.Heads/op.KVHeads, tile)
	if r.rows >= tiledRows {
		a.tileRows = tile / a.tileHeads
	}
	a.isShort = a.span <= shortSpan && r.rows <= shortRows && (r.rows > 1 || a.rowShared(r) <= r.dev.info.MaxShared)
	hd := 16 * a.cache.headVectors()
	a.queries = r.attendBuf("queries", r.rows*op.Heads*(2*hd+16))
	if a.isGrouped = !a.isShort && a.groups(r); a.isGrouped {
		a.tileHeads, _, _ = a.groupShape(r)
	}
	if a.isShort || a.isGrouped {
		none := r.tables()
		a.rows, a.scores, a.maxima, a.partials, a.totals = r.rows, none, none, none, none
		return a
	}

	// One row at least at a time, then as many as the scratch takes.
	scores, totals := 4*op.Heads*a.stride, 8*op.Heads*hd
	limit := int(min(attendScratch, r.dev.info.MaxRange))
	a.rows = min(r.rows, max(1, limit/max(scores, totals)))
	blocks := a.stride/blockPositions + 1 // the rows of a tile may begin in two
	splits := max(1, min(blocks, groups/(a.valueTiles()*ceilDiv(a.rows, a.tileRows)), limit/(totals*a.rows)))
	a.splits = ceilDiv(blocks, ceilDiv(blocks, splits)) // none without work
	n := a.rows * op.Heads
	a.scores = r.attendBuf("scores", a.rows*scores)
	a.maxima = r.attendBuf("maxima", n*4*a.parts(a.stride/blockPositions))
	a.partials = r.attendBuf("partials", n*16*a.chunks)
	a.totals = r.attendBuf("totals", a.rows*totals*a.splits)
	return a
}

// run dispatches the shaders behind the queries.
func (a *attention) run(r *recording) {
	for first := 0; first < r.rows; first += a.rows {
		end := min(first+a.rows, r.rows)
		switch {
		case a.isShort:
			a.short(r, first, end)
		case a.isGrouped:
			a.group(r, first, end)
		default:
			a.long(r, first, end)
		}
	}
}

// attendBuf is scratch memory, shared by the layers. Those with a window need less: sizes are powers of two, so that
// some of these share too.
func (r *recording) attendBuf(name string, bytes int) vk.Binding {
	if int64(bytes) > r.dev.info.MaxRange {
		r.fail(fmt.Errorf("attention over %d positions takes %d bytes for its %s, %s binds at most %d",
			r.context, bytes, name, r.dev.info.Name, r.dev.info.MaxRange))
		return r.tables()
	}
	size := min(1<<bits.Len(uint(bytes-1)), r.dev.info.MaxRange)
	return r.scratchBuf(fmt.Sprintf("attend %s %d", name, size), size)
}

// parts is over how many parts of the context that many blocks spread at most.
func (a *attention) parts(blocks int) int { return (blocks+a.part-2)/a.part + 1 }

// valueTiles is the workgroups of attend_values.comp for a row tile and a part of the context.
func (a *attention) valueTiles() int {
	return a.op.KVHeads * a.headTiles() * ceilDiv(a.op.HeadDim, 64)
}

func (a *attention) headTiles() int { return ceilDiv(a.op.Heads/a.op.KVHeads, a.tileHeads) }

// The bindings of the shaders of attention.
const (
	bindRows = iota
	bindQueries
	bindCache
	bindScores
	bindMaxima
	bindPartials
	bindTotals
	bindDst
	bindTables
	bindStatus
	bindSlopes
	bindProducts
	attendBindings
)

// pass dispatches one shader for rows [first, end), which reads and writes the given bindings besides those that no
// dispatch of attention writes. The constants of s come after those of attend.glsl; threads is the size of a workgroup
// where it can be chosen.
func (a *attention) pass(r *recording, s shader, threads, first, end int, x, y, z int, reads, writes []int) {
	op := a.op
	all := [attendBindings]vk.Binding{r.rowsBuf(), a.queries, whole(a.cache.layers[op.CacheLayer]), a.scores, a.maxima, a.partials, a.totals,
		r.buffer(op.Dst), r.tables(), r.status(), r.vector(op.Slopes), r.tables()}
	if r.dev.tier == VulkanLUT {
		all[bindProducts] = whole(r.dev.products)
	}
	var uses [attendBindings]access
	for i, b := range all {
		uses[i] = shared(b) // of no consequence
	}
	for _, i := range reads {
		uses[i] = read(all[i])
	}
	for _, i := range writes {
		uses[i] = write(all[i])
	}
	s.constants = append([]uint32{uint32(threads), uint32(op.HeadDim), uint32(a.tileHeads), uint32(a.tileRows)}, s.constants...)
	r.dispatch(s, a.push(first, end), x, y, z, uses[:]...)
}

// push are the push constants of attend.glsl for rows [first, end).
func (a *attention) push(first, end int) []byte {
	op, inverse := a.op, float32(0)
	if op.Cap != 0 {
		inverse = 1 / op.Cap
	}
	return pushConstants(first, end, op.Heads, op.KVHeads, a.stride, a.cache.blocks(), op.Window, a.splits, a.index, op.Scale, op.Cap, inverse)
}

// units is the name of a shader that multiplies, for the tier of the device.
func (r *recording) units(name string) string { return name + "_" + r.dev.units() }

// variants are the specialisation constants of scores.
func (a *attention) variants() []uint32 {
	return []uint32{boolConstant(a.op.Cap != 0), boolConstant(a.op.Slopes != nil)}
}

func (a *attention) long(r *recording, first, end int) {
	op, rows := a.op, end-first
	tiles, rowTiles := op.KVHeads*a.headTiles(), ceilDiv(rows, a.tileRows)
	blocks := a.stride / blockPositions
	if a.tileRows > 1 {
		blocks++ // the rows of a tile may begin in two
	}
	scores, threads := shader{name: r.units("attend_scores"), constants: a.variants()}, 0
	if a.matrices != "" {
		scores, threads = a.onMatrices(r, "attend_scores", a.variants(), uint32(a.part), uint32(a.slice(r.dev.info.MaxShared)))
	}
	a.pass(r, scores, threads, first, end, a.parts(blocks), tiles, rowTiles, []int{bindQueries, bindCache}, []int{bindScores, bindMaxima})
	weighTiles := ceilDiv(op.Heads, weighHeads)
	weighThreads := ceilDiv(op.Heads, weighTiles) * weighUnit
	weights := "attend_weights"
	if r.dev.info.SubgroupShuffle {
		weights += "_shuffle"
	}
	a.pass(r, shader{name: weights, subgroup: r.dev.info.Subgroup, constants: []uint32{uint32(a.part), uint32(weighThreads)}}, weighThreads, first, end, a.chunks, weighTiles, rows,
		[]int{bindCache, bindMaxima}, []int{bindScores, bindPartials})

	channelTiles := ceilDiv(op.HeadDim, 64)
	constants := []uint32{uint32(channelTiles), boolConstant(a.splits == 1)}
	values, threads := shader{name: r.units("attend_values"), constants: constants}, 0
	if a.matrices != "" {
		values, threads = a.onMatrices(r, "attend_values", constants)
	}
	out := bindTotals
	if a.splits == 1 {
		out = bindDst
	}
	a.pass(r, values, threads, first, end, a.splits, tiles*channelTiles, rowTiles, []int{bindCache, bindScores, bindPartials}, []int{out})
	if a.splits > 1 {
		a.pass(r, shader{name: "attend_finish"}, 0, first, end, channelTiles, op.Heads, rows, []int{bindTotals, bindPartials}, []int{bindDst})
	}
}

// onMatrices is the shader of that name that multiplies by matrices, and its workgroup: four subgroups. Their size comes between
// the constants that attend_scores.comp and attend_values.comp have too and more of its own.
func (a *attention) onMatrices(r *recording, name string, constants []uint32, more ...uint32) (s shader, threads int) {
	size := r.dev.info.Subgroup
	return shader{name: name + a.matrices, subgroup: size, constants: slices.Concat(constants, []uint32{uint32(size)}, more)}, 4 * size
}

// slice is how many vectors of a limb attend_scores_matrix.comp has in that many bytes of shared memory at a time: all of a
// head of up to 128 channels, if possible.
func (a *attention) slice(shared int) int {
	n := min(8, (a.cache.headVectors()+1)/2*2)
	for n > 2 && 16*(2*64*(2*n+1)+2*4*64)+1024 > shared {
		n -= 2
	}
	return n
}
