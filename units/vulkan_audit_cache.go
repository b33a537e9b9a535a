package units

import (
	"encoding/binary"

	"dchain/units/vk"
)

// Audits of cached keys and values: those of one head.

// kvHead is where a block of the audited head of the row's slot lies, and its size.
func (a *vulkanAuditor) kvHead(op *Op, block int) (buf *vk.Buffer, at, size int64) {
	c := a.e.prog.Cache.(*vulkanCache)
	size = 16 * int64(c.blockVectors())
	return c.layers[op.CacheLayer], int64((a.st.rows[0].Slot*c.spec.KVHeads+a.head)*c.blocks()+block) * size, size
}

// kv are the blocks [first, end) of the audited head.
func (a *vulkanAuditor) kv(op *Op, first, end int) ([]byte, *vulkanCache) {
	buf, at, size := a.kvHead(op, first)
	return a.copy(a.after, buf, at, int64(end-first)*size), a.e.prog.Cache.(*vulkanCache)
}

// cached takes the limbs of position pos of a block apart: part 0 is K, 1 is V.
func (c *vulkanCache) cached(block []byte, part, pos int, limbs *[3][]int8) (exp int) {
	hdp := 16 * c.headVectors()
	for limb := range 2 {
		plane := block[(2*part+limb)*blockPositions*hdp:]
		for d := range c.spec.HeadDim {
			at := (d/16*blockPositions+pos)*16 + d%16
			if part == 1 {
				at = (pos/16*hdp+d)*16 + pos%16
			}
			limbs[limb][d] = int8(plane[at])
		}
	}
	exps := block[4*blockPositions*hdp:]
	return int(int32(binary.LittleEndian.Uint32(exps[4*(part*blockPositions+pos):])))
}

// stored holds the keys and values of one head, as the device cached them, against the reference.
func (a *vulkanAuditor) stored(op *Op) error {
	pos, head := a.st.rows[0].Pos, a.head
	block, c := a.kv(op, pos/blockPositions, pos/blockPositions+1)
	hd := c.spec.HeadDim
	got := &[3][]int8{make([]int8, hd), make([]int8, hd)}
	for part, b := range []Buf{op.A, op.B} {
		want := a.s.headLimbs(hd)
		q, ok := quantiseRow(a.st.kern, want, a.st.f32[b][head*hd:(head+1)*hd], false)
		if !ok {
			return nil // the operation has reported it
		}
		if exp := c.cached(block, part, pos%blockPositions, got); exp != q.exp {
			return a.differs(op, head*hd, float64(exp), float64(q.exp))
		}
		for limb := range 2 {
			for d := range hd {
				if got[limb][d] != want[limb][d] {
					return a.differs(op, head*hd+d, float64(got[limb][d]), float64(want[limb][d]))
				}
			}
		}
	}
	return nil
}

// attend recomputes the queries of one key-value head over what the device has cached.
func (a *vulkanAuditor) attend(op *Op) error {
	pos := a.st.rows[0].Pos
	head, perKV, hd := a.head, op.Heads/op.KVHeads, op.HeadDim
	blocks := pos/blockPositions + 1
	bytes, c := a.kv(op, 0, blocks)
	cache, err := (&cpuDevice{kern: &genericKernels}).NewCache(CacheSpec{Layers: 1, Slots: 1, Context: pos + 1, KVHeads: 1, HeadDim: hd})
	if err != nil {
		return err
	}
	defer cache.Close()
	one := cache.(*cpuCache)
	limbs := &[3][]int8{make([]int8, hd), make([]int8, hd)}
	for p := range pos + 1 {
		block, size := one.block(0, 0, 0, p/blockPositions), len(bytes)/blocks
		from := bytes[p/blockPositions*size:][:size]
		exp := c.cached(from, 0, p%blockPositions, limbs)
		one.storeK(block, p%blockPositions, limbs, exp)
		exp = c.cached(from, 1, p%blockPositions, limbs)
		one.storeV(block, p%blockPositions, limbs, exp)
	}

	// The same operation over this head alone, as a program of its own.
	local := *op
	local.A, local.Dst, local.CacheLayer, local.Heads, local.KVHeads = 0, 1, 0, perKV, 1
	if op.Slopes != nil {
		local.Slopes = &cpuVector{v: vectorOf(op.Slopes)[head*perKV : (head+1)*perKV]}
	}
	width := perKV * hd
	st := newState(&Program{Bufs: []BufSpec{{F32, width}, {F32, width}}, Cache: cache}, &genericKernels)
	st.rows = []Row{{Pos: pos}}
	st.resize(1)
	copy(st.f32[0], a.st.f32[op.A][head*width:])
	st.attendRow(&local, 0, &a.s)
	return a.compareWith(op, head*width, st.f32[1])
}
