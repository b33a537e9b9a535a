// Keeping the scores of a tile, for attend.glsl: includers have attend_score.glsl and the bindings of scores.

layout(std430, set = 0, binding = 3) writeonly buffer Scores { float scores[]; }; // [rows][heads][stride] from the first block
layout(std430, set = 0, binding = 4) writeonly buffer Maxima { uint maxima[]; };  // [rows][heads][stride / 64] ordered

shared int queryExp[TILE];
shared uint highest[TILE];

// record keeps the score of query q, of the run, for position p of a block, if the row sees it. The invocations of a
// subgroup call it together for the same q.
void record(Tile t, uint q, uint block, uint p, ivec3 sums, float keyScale) {
    uint row = t.row + q / TILE_HEADS;
    uint head = t.head + q % TILE_HEADS;
    int pos = positionOf(row);
    uint j = block * BLOCK + p;
    uint top = 0u;
    if (j >= lowest(pos) && j <= uint(pos)) {
        float s = scoreOf(sums, pow2(queryExp[q]), keyScale, row, head, pos, j);
        scores[rowHead(row, head) * stride + (j - firstBlock(pos) * BLOCK)] = s;
        top = ordered(s);
    }
    top = subgroupMax(top);
    if (subgroupElect()) {
        atomicMax(highest[q], top);
    }
}

// recordMaxima keeps the largest score of each query of the run in the block; THREADS invocations call it.
void recordMaxima(Tile t, uint from, uint to, uint block, uint threads) {
    for (uint q = gl_LocalInvocationID.x; q < TILE; q += threads) {
        uint row = t.row + q / TILE_HEADS;
        if (inRun(t, q, from, to) && block >= firstBlock(positionOf(row)) && block * BLOCK <= uint(positionOf(row))) {
            maxima[rowHead(row, t.head + q % TILE_HEADS) * (stride / BLOCK) + block - firstBlock(positionOf(row))] = highest[q];
        }
    }
}
