package units

import "fmt"

// blockPositions is the number of positions of an attention block (NUMERICS.md section 8).
const blockPositions = 64

// valueOffset is what the offset of 128 of both limbs adds to a value.
const valueOffset = 128 * 257

// cpuCache holds K and V in blocks of 64 positions, per layer, slot and head, in the panel layout of the weights:
//
//	K: for each of 4 panels of 16 positions: high limbs [headDim/4][16 positions][4], then low limbs
//	V: for each panel of 16 channels: high limbs [64/4][16 channels][4 positions], then low limbs
//
// so that scores and weighted sums are panel products. Bytes are the limb + 128. What lies beyond the positions written
// is never multiplied by anything but zero.
type cpuCache struct {
	dev    *cpuDevice
	spec   CacheSpec
	hd     int     // head dimension, padded to whole panels
	blocks int     // per slot
	region *region // of all layers' data
	layers []cpuCacheLayer
}

// cpuCacheLayer is the part of one layer: [slots][heads][blocks].
type cpuCacheLayer struct {
	data []uint8
	exps []int16 // per block: 64 of K, 64 of V
}

func (d *cpuDevice) NewCache(spec CacheSpec) (Cache, error) {
	if err := spec.validate(); err != nil {
		return nil, err
	}
	c := &cpuCache{dev: d, spec: spec, hd: padded(spec.HeadDim, panelRows),
		blocks: (spec.Context + blockPositions - 1) / blockPositions}
	n := spec.Slots * spec.KVHeads * c.blocks
	size := n * c.blockBytes()
	var err error
	if c.region, err = newRegion(spec.Layers*size, false); err != nil {
		return nil, fmt.Errorf("reserving the kv cache: %w", err)
	}
	c.layers = make([]cpuCacheLayer, spec.Layers)
	for i := range c.layers {
		c.layers[i] = cpuCacheLayer{c.region.data[i*size : (i+1)*size], make([]int16, n*2*blockPositions)}
	}
	return c, nil
}

// maxHeadDim bounds scratch memory; published models have at most 512.
const maxHeadDim = 1024

func (s CacheSpec) validate() error {
	for _, v := range []int{s.Layers, s.Slots, s.Context, s.KVHeads, s.HeadDim} {
		if v < 1 || v > 1<<24 {
			return fmt.Errorf("reserving the kv cache: %+v: every size must be at least 1", s)
		}
	}
	if s.HeadDim > maxHeadDim {
		return fmt.Errorf("reserving the kv cache: head dimension %d, at most %d", s.HeadDim, maxHeadDim)
	}
	return nil
}

func (c *cpuCache) Spec() CacheSpec { return c.spec }

func (c *cpuCache) owner() Device { return c.dev }

func (c *cpuCache) Close() error {
	if c.region != nil {
		c.region.release()
	}
	c.region, c.layers = nil, nil
	return nil
}

func (c *cpuCache) blockBytes() int { return 4 * blockPositions * c.hd }

// block is block b of one head of one slot.
type kvBlock struct {
	k, v       []uint8
	expK, expV []int16
}

func (c *cpuCache) block(layer, slot, head, b int) kvBlock {
	i := (slot*c.spec.KVHeads+head)*c.blocks + b
	size := c.blockBytes()
	data := c.layers[layer].data[i*size : (i+1)*size]
	exps := c.layers[layer].exps[i*2*blockPositions : (i+1)*2*blockPositions]
	return kvBlock{data[:size/2], data[size/2:], exps[:blockPositions], exps[blockPositions:]}
}

// keys are the keys of blocks [first, last) of one head of one slot and all that lies between them, and their exponents.
func (c *cpuCache) keys(layer, slot, head, first, last int) ([]uint8, []int16) {
	i, n := (slot*c.spec.KVHeads+head)*c.blocks+first, last-first
	data, exps := c.layers[layer].data[i*c.blockBytes():], c.layers[layer].exps[i*2*blockPositions:]
	return data[:n*c.blockBytes()], exps[:n*2*blockPositions]
}

// kPanel is limb b of the keys of 16 positions, panel p of 4 in the block.
func (c *cpuCache) kPanel(b kvBlock, p, limb int) []uint8 {
	size := panelRows * c.hd
	at := (2*p + limb) * size
	return b.k[at : at+size : at+size]
}

// vPanel is limb b of 16 channels of the values, panel p.
func (c *cpuCache) vPanel(b kvBlock, p, limb int) []uint8 {
	const size = panelRows * blockPositions
	at := (2*p + limb) * size
	return b.v[at : at+size : at+size]
}

// inPanel is where row n, input k of a panel lies.
func inPanel(n, k int) int { return (k/groupK*panelRows+n)*groupK + k%groupK }

// storeK writes one head row of keys at a position of the block; limbs hold the head dimension.
func (c *cpuCache) storeK(b kvBlock, pos int, limbs *[3][]int8, exp int) {
	for limb := range 2 {
		panel := c.kPanel(b, pos/panelRows, limb)
		for d, v := range limbs[limb] {
			panel[inPanel(pos%panelRows, d)] = uint8(v) + 128
		}
	}
	b.expK[pos] = int16(exp)
}

// storeV is storeK for values.
func (c *cpuCache) storeV(b kvBlock, pos int, limbs *[3][]int8, exp int) {
	for limb := range 2 {
		for d, v := range limbs[limb] {
			c.vPanel(b, d/panelRows, limb)[inPanel(d%panelRows, pos)] = uint8(v) + 128
		}
	}
	b.expV[pos] = int16(exp)
}

// storedK and storedV read one limb back.
func (c *cpuCache) storedK(b kvBlock, pos, d, limb int) int8 {
	return int8(c.kPanel(b, pos/panelRows, limb)[inPanel(pos%panelRows, d)] - 128)
}

func (c *cpuCache) storedV(b kvBlock, pos, d, limb int) int8 {
	return int8(c.vPanel(b, d/panelRows, limb)[inPanel(d%panelRows, pos)] - 128)
}

// storeRow is OpStoreKV for row r.
func (st *state) storeRow(op *Op, r int, s *scratch) {
	c, row := st.cache, st.rows[r]
	hd := c.spec.HeadDim
	width := c.spec.KVHeads * hd
	limbs := s.headLimbs(hd)
	for h := range c.spec.KVHeads {
		b := c.block(op.CacheLayer, row.Slot, h, row.Pos/blockPositions)
		at := r*width + h*hd
		q, ok := quantiseRow(st.kern, limbs, st.f32[op.A][at:at+hd], false)
		if !ok {
			st.fail(op, r, errNotFinite)
			return
		}
		c.storeK(b, row.Pos%blockPositions, limbs, q.exp)
		if q, ok = quantiseRow(st.kern, limbs, st.f32[op.B][at:at+hd], false); !ok {
			st.fail(op, r, errNotFinite)
			return
		}
		c.storeV(b, row.Pos%blockPositions, limbs, q.exp)
	}
}
