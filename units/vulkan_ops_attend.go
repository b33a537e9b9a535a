package units

import (
	"fmt"
	"math/bits"

	"dchain/units/vk"
)

// Attention on a Vulkan device: shaders/attend.glsl describes its passes.

// Limits of the ways attention is computed. Tests lower them.
var (
	// shortSpan and shortRows bound the positions and rows that attend_short.comp takes in one dispatch: more positions
	// exceed its shared memory, and more rows gain by sharing the keys and values that they read.
	shortSpan, shortRows = 2048, 64
	// attendScratch bounds the bytes of a scratch buffer; the rows of a batch are taken a part at a time.
	attendScratch = int64(64 << 20)
	// attendGroups is how many workgroups the sums of values are spread over, if the context has as many parts.
	attendGroups = 1024
)

const (
	attendTile  = 8    // queries that share keys and values
	tableTile   = 2    // the same where units are tables, whose code is long
	attendChunk = 1024 // positions of a workgroup of attend_weights.comp
)

// headRows dispatches heads.comp: the query heads of op q for rows [first, end), or keys and values of op store.
type headRows struct {
	cache      *vulkanCache
	layer      int
	store      *Op // nil for none
	storeIndex int
	q          *Op // nil for none
	queryIndex int
	first, end int
	queries    vk.Binding
}

func (r *recording) headRows(h headRows) {
	spec := h.cache.spec
	words := 4 * h.cache.headVectors()
	threads, per := r.rowThreads(words, 1)
	none := r.tables()
	qIn, kIn, vIn, queries, cache := read(none), read(none), read(none), read(none), read(none)
	heads, stored := 0, 0
	if h.q != nil {
		heads = h.q.Heads
		qIn, queries = read(r.buffer(h.q.A)), write(h.queries)
	}
	if h.store != nil {
		stored = spec.KVHeads
		kIn, vIn, cache = read(r.buffer(h.store.A)), read(r.buffer(h.store.B)), write(whole(h.cache.layers[h.layer]))
	}
	r.dispatch(shader{name: "heads", constants: []uint32{uint32(threads), uint32(spec.HeadDim), 0, 0, uint32(per), 0}},
		pushConstants(h.first, heads, stored, h.cache.blocks(), 0, h.storeIndex, h.queryIndex), heads+2*stored, h.end-h.first, 1,
		read(r.rowsBuf()), queries, cache, qIn, kIn, vIn, read(none), read(none), read(none), shared(r.status()), read(none))
}

// storeKV is OpStoreKV.
func (r *recording) storeKV(i int) int {
	op := &r.prog.Ops[i]
	r.headRows(headRows{cache: r.prog.Cache.(*vulkanCache), layer: op.CacheLayer, store: op, storeIndex: i, end: r.rows})
	return 1
}

// attention is one OpAttend while it is recorded.
type attention struct {
	op        *Op
	index     int
	cache     *vulkanCache
	stride    int // positions for which a row and head has room
	chunks    int
	tileHeads int
	tileRows  int
	splits    int
	rows      int // at a time

	queries, scores, maxima, partials, totals vk.Binding
}

// attend is OpAttend.
func (r *recording) attend(i int) int {
	a := attention{op: &r.prog.Ops[i], index: i, cache: r.prog.Cache.(*vulkanCache), tileRows: 1}
	op := a.op
	a.stride = padded(r.context, blockPositions)
	if op.Window > 0 {
		// A window that begins within a block needs the rest of the block too.
		a.stride = min(a.stride, padded(op.Window+blockPositions-1, blockPositions))
	}
	a.chunks = ceilDiv(a.stride, attendChunk)
	tile := attendTile
	if r.dev.tier == VulkanLUT {
		tile = tableTile
	}
	a.tileHeads = min(op.Heads/op.KVHeads, tile)
	short := a.stride <= shortSpan && r.rows <= shortRows
	if !short && r.rows > shortRows {
		a.tileRows = tile / a.tileHeads
	}

	// One row at least, then as many as the scratch takes.
	hd := 16 * a.cache.headVectors()
	perRow := int64(op.Heads) * int64(2*hd+16)
	if !short {
		perRow = max(perRow, int64(op.Heads)*4*int64(a.stride))
	}
	limit := min(attendScratch, r.dev.info.MaxRange)
	a.rows = int(min(int64(r.rows), max(1, limit/perRow)))
	if !short {
		blocks := a.stride/blockPositions + a.tileRows/blockPositions + 1
		a.splits = max(1, min(blocks, attendGroups/(a.valueTiles()*ceilDiv(a.rows, a.tileRows)),
			int(limit/(int64(op.Heads)*8*int64(hd)*int64(a.rows)))))
		a.splits = ceilDiv(blocks, ceilDiv(blocks, a.splits)) // none without work
	}
	for _, size := range []int64{perRow, int64(op.Heads) * 8 * int64(hd)} {
		if size > r.dev.info.MaxRange {
			r.fail(fmt.Errorf("attention of %d heads over %d positions takes %d bytes for a row, %s binds at most %d",
				op.Heads, r.context, size, r.dev.info.Name, r.dev.info.MaxRange))
			return 1
		}
	}
	a.reserve(r, short, hd)
	for first := 0; first < r.rows; first += a.rows {
		end := min(first+a.rows, r.rows)
		r.headRows(headRows{cache: a.cache, layer: op.CacheLayer, q: op, queryIndex: i, first: first, end: end, queries: a.queries})
		if short {
			a.short(r, first, end)
		} else {
			a.long(r, first, end)
		}
	}
	return 1
}

// valueTiles is the workgroups of attend_values.comp for a row tile and a part of the context.
func (a *attention) valueTiles() int {
	return a.op.KVHeads * a.headTiles() * ceilDiv(a.op.HeadDim, 64)
}

func (a *attention) headTiles() int { return ceilDiv(a.op.Heads/a.op.KVHeads, a.tileHeads) }

// reserve finds scratch memory, shared by all layers. Recordings differ in rows and context only, and the sizes in the
// variant of attention too, so each size has its own.
func (a *attention) reserve(r *recording, short bool, hd int) {
	get := func(name string, bytes int) vk.Binding {
		// Powers of two, so that layers with a window and layers without may share.
		bytes = 1 << bits.Len(uint(bytes-1))
		return r.scratchBuf(fmt.Sprintf("attend %s %d", name, bytes), int64(bytes))
	}
	n := a.rows * a.op.Heads
	a.queries = get("queries", n*(2*hd+16))
	if short {
		none := r.tables()
		a.scores, a.maxima, a.partials, a.totals = none, none, none, none
		return
	}
	a.scores = get("scores", n*4*a.stride)
	a.maxima = get("maxima", n*4*a.stride/blockPositions)
	a.partials = get("partials", n*16*a.chunks)
	a.totals = get("totals", n*8*hd*a.splits)
}

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
// dispatch of attention writes. extra are specialisation constants after those of attend.glsl.
func (a *attention) pass(r *recording, name string, first, end int, extra []uint32, x, y, z int, reads, writes []int) {
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
	inverse := float32(0)
	if op.Cap != 0 {
		inverse = 1 / op.Cap
	}
	constants := append([]uint32{0, uint32(op.HeadDim), uint32(a.tileHeads), uint32(a.tileRows)}, extra...)
	r.dispatch(shader{name: name, constants: constants},
		pushConstants(first, end, op.Heads, op.KVHeads, a.stride, a.cache.blocks(), op.Window, a.splits, a.index, op.Scale, op.Cap, inverse),
		x, y, z, uses[:]...)
}

// units is the name of a shader that multiplies, for the tier of the device.
func (r *recording) units(name string) string { return name + "_" + string(r.dev.tier) }

// variants are the specialisation constants of scores.
func (a *attention) variants() []uint32 {
	return []uint32{boolConstant(a.op.Cap != 0), boolConstant(a.op.Slopes != nil)}
}

func (a *attention) short(r *recording, first, end int) {
	a.pass(r, r.units("attend_short"), first, end, append(a.variants(), uint32(a.stride)), a.op.Heads, end-first, 1,
		[]int{bindQueries, bindCache}, []int{bindDst})
}

func (a *attention) long(r *recording, first, end int) {
	op, rows := a.op, end-first
	tiles, rowTiles := op.KVHeads*a.headTiles(), ceilDiv(rows, a.tileRows)
	blocks := a.stride / blockPositions
	if a.tileRows > 1 {
		blocks++ // the rows of a tile may begin in two
	}
	a.pass(r, r.units("attend_scores"), first, end, a.variants(), blocks, tiles, rowTiles,
		[]int{bindQueries, bindCache}, []int{bindScores, bindMaxima})
	a.pass(r, "attend_weights", first, end, nil, a.chunks, op.Heads, rows,
		[]int{bindCache, bindMaxima}, []int{bindScores, bindPartials})
	channelTiles := ceilDiv(op.HeadDim, 64)
	extra := []uint32{uint32(channelTiles), boolConstant(a.splits == 1)}
	reads := []int{bindCache, bindScores, bindPartials}
	if a.splits == 1 {
		a.pass(r, r.units("attend_values"), first, end, extra, 1, tiles*channelTiles, rowTiles, reads, []int{bindDst})
		return
	}
	a.pass(r, r.units("attend_values"), first, end, extra, a.splits, tiles*channelTiles, rowTiles, reads, []int{bindTotals})
	a.pass(r, "attend_finish", first, end, nil, channelTiles, op.Heads, rows, []int{bindTotals, bindPartials}, []int{bindDst})
}
