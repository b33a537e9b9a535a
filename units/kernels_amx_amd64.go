//go:build amd64 && !purego

package units

// amxKernels are those of AVX-512 with the matrix unit for batches.
var amxKernels = func() kernels {
	k := avx512Kernels
	k.name, k.block, k.pairs = "amx", blockAMX, pairsAMX
	k.headScores, k.headValues, k.settle = headScoresAMX, headValuesAMX, settleAMX
	return k
}()

// tileConfig is the memory operand of LDTILECFG: which rows and columns of the tile registers are in use.
type tileConfig struct {
	palette  uint8
	_        [15]uint8 // the row to resume at, and reserved
	rowBytes [16]uint16
	rows     [16]uint8
}

// tileConfigs are the configurations of blockTiles, by the number of limb rows.
var tileConfigs = func() (configs [blockTile + 1]tileConfig) {
	for rows := range configs {
		first, second := uint8(min(rows, 16)), uint8(max(rows-16, 0))
		c := &configs[rows]
		c.palette = 1
		for i, n := range [8]uint8{first, second, first, second, first, second, 16, 16} {
			c.rows[i] = n
			if n > 0 {
				c.rowBytes[i] = 64
			}
		}
	}
	return
}()

//go:noescape
func blockTiles(dst *unitSums, init *int32, w *uint8, panel int, a *int8, count, rows, steps int, tail *uint8, config *tileConfig, pair int)

// tileBytes is what a tile register holds.
const tileBytes = blockGroups * panelRows * groupK

func blockAMX(dst []unitSums, init []int32, w []uint8, panels int, a []int8, rows, groups int) {
	checkBlock(dst, init, w, panels, a, rows, groups)
	second := groups * panelRows * groupK // of a single panel its sums are made twice
	if panels == 1 {
		second = 0
	}
	if groups%blockGroups != 0 {
		blockTail(dst, init, w, second, a, rows, groups)
		return
	}
	blockTiles(&dst[0], &init[0], &w[0], second, &a[0], len(dst), rows, groups/blockGroups, nil, &tileConfigs[rows], 0)
}

// blockTail hands the inputs that fill no tile over in a copy, since a tile is read as a whole.
func blockTail(dst []unitSums, init []int32, w []uint8, second int, a []int8, rows, groups int) {
	var tails [blockPanels * tileBytes]uint8
	size := groups * panelRows * groupK
	whole := size / tileBytes * tileBytes
	copy(tails[:], w[whole:size])
	copy(tails[tileBytes:], w[second+whole:second+size])
	blockTiles(&dst[0], &init[0], &w[0], second, &a[0], len(dst), rows, groups/blockGroups, &tails[0], &tileConfigs[rows], 0)
}

func pairsAMX(dst []unitSums, init []int32, w []uint8, a []int8, rows, groups int) {
	checkPairs(dst, init, w, a, rows, groups)
	panel := groups * panelRows * groupK
	blockTiles(&dst[0], &init[0], &w[0], panel, &a[0], len(dst), rows, groups/blockGroups, nil, &tileConfigs[rows], blockPanels*panel)
}
