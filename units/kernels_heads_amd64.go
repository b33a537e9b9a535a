//go:build amd64 && !purego

package units

// headConfigs are those of the kernels of heads, by the number of queries.
var headConfigs = func() (configs [blockTile/2 + 1]tileConfig) {
	for queries := range configs {
		c := &configs[queries]
		c.palette = 1
		for i, n := range [8]int{queries, queries, queries, 0, queries, queries, panelRows, panelRows} {
			c.rows[i] = uint8(n)
			if n > 0 {
				c.rowBytes[i] = 64
			}
		}
	}
	return
}()

//go:noescape
func headScoresTiles(h *headScores, units *[2]headUnits, config *tileConfig)

//go:noescape
func headValuesTiles(h *headSums, units *[2]headUnits, blocks *headValues, count int, config *tileConfig)

//go:noescape
func settleAVX512(h *headSums)

func headScoresAMX(h *headScores) {
	blocks := h.panels * panelRows / blockPositions
	if h.n < 1 || h.n > blockTile/2 || blocks < 1 || h.panels%(blockPositions/panelRows) != 0 || h.steps < 1 || h.step != 2*h.n*blockGroups*groupK {
		panic("units: no kernel for scores of this shape")
	}
	keys := h.steps * 2 * blockGroups * groupK * blockPositions // of a block
	_, _, _ = h.tile[h.steps*h.step-1], h.keys[(blocks-1)*(keys+h.gap)+keys-1], h.exps[(blocks-1)*(blockPositions+otherExps)+blockPositions-1]
	_, _ = h.exp2[h.n-1], h.dst[blocks*h.n*blockPositions-1]
	headScoresTiles(h, &h.units, &headConfigs[h.n])
}

func headValuesAMX(h *headSums, blocks []headValues) {
	h.check()
	for i := range blocks {
		b := &blocks[i]
		_, _, _, _ = b.limbs[2*h.n*blockPositions-1], b.values[len(h.near)*2*blockPositions*panelRows-1], b.near[:b.nears], b.far[:b.fars]
	}
	headValuesTiles(h, &h.units, &blocks[0], len(blocks), &headConfigs[h.n])
}

func settleAMX(h *headSums) {
	h.check()
	settleAVX512(h)
}

// check panics where the totals are too short.
func (h *headSums) check() {
	if h.n < 1 || h.n > blockTile/2 || len(h.near) == 0 || h.channels < len(h.near)*panelRows {
		panic("units: no kernel for values of this shape")
	}
	_ = h.total[(h.n-1)*h.channels+len(h.near)*panelRows-1]
}
