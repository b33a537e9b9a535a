// Attention, NUMERICS.md section 8: what its shaders share. A step of attention is
//
//   heads    queries to limbs
//   scores   s_j, and their maximum over each block of 64 positions, or over parts of several (attend_parts.glsl)
//   weights  m, then w_j, cut into limbs block by block; D and X over chunks of 1,024 positions
//   values   Total over a part of the context
//   finish   sums the parts and gives the output; not needed where values has the whole context
//
// Every sum and maximum is one of integers, so that nothing depends on how the context is shared out.

const uint CHUNK = 1024u; // positions of a workgroup of weights

#include "kv.glsl"
#define ROWS 0
#include "rows.glsl"

// Push constants of all but heads. Rows [first, end) of the batch are computed; in the buffers from scores to totals row
// first is row 0.
layout(push_constant) uniform Push {
    uint first;
    uint end;
    uint heads;
    uint kvHeads;
    uint stride; // positions for which a row and head has room in scores, a multiple of 64
    uint blocks; // of the cache, for each slot and head
    uint window; // 0 for none
    uint splits; // parts of the context in values
    uint op;
    float scale;
    float cap; // 0 for none
    float inverseCap;
#ifdef HEADS
    uint storeOp; // of the keys and values
    uint awaited; // chain.glsl
    uint workgroups;
    uint ownCounter;
#endif
};

// lowest is the first position that the row at pos sees; firstBlock the block it lies in.
uint lowest(int pos) { return window > 0u && uint(pos) >= window ? uint(pos) - window + 1u : 0u; }
uint firstBlock(int pos) { return lowest(pos) / BLOCK; }

// blockCount is the number of blocks in which the row at pos sees something.
uint blockCount(int pos) { return uint(pos) / BLOCK - firstBlock(pos) + 1u; }

// chunkCount is the number of chunks of weights of the row at pos.
uint chunkCount(int pos) { return (blockCount(pos) * BLOCK + CHUNK - 1u) / CHUNK; }

// maxChunks is what a row and head has room for.
uint maxChunks() { return (stride + CHUNK - 1u) / CHUNK; }

// rowHead numbers the pairs of row and head within the buffers from scores to totals.
uint rowHead(uint row, uint head) { return (row - first) * heads + head; }

// cacheBlock is where a block of the cache begins, in uvec4.
uint cacheBlock(uint slot, uint kvHead, uint block) { return ((slot * kvHeads + kvHead) * blocks + block) * BLOCK_VECTORS; }

// A tile is the queries that share the keys and values one workgroup reads: TILE_HEADS heads of one key-value head for
// TILE_ROWS rows. Rows of a tile that have different slots are taken one after the other.
layout(constant_id = 2) const uint TILE_HEADS = 1u;
layout(constant_id = 3) const uint TILE_ROWS = 1u;
const uint TILE = TILE_HEADS * TILE_ROWS;

// headTiles is the number of tiles that the heads of a key-value head make.
uint headTiles() { return (heads / kvHeads + TILE_HEADS - 1u) / TILE_HEADS; }

struct Tile {
    uint row;    // first row
    uint kvHead;
    uint head;   // first head
    uint heads;  // how many of TILE_HEADS there are
};

// tileOf is tile y of the heads for row tile z.
Tile tileOf(uint y, uint z) {
    Tile t;
    uint group = heads / kvHeads;
    t.row = first + z * TILE_ROWS;
    t.kvHead = y / headTiles();
    uint h = y % headTiles() * TILE_HEADS;
    t.head = t.kvHead * group + h;
    t.heads = min(TILE_HEADS, group - h);
    return t;
}

// runEnd is the end of the rows from row on, within the tile, that have its slot.
uint runEnd(Tile t, uint row) {
    uint limit = min(end, t.row + TILE_ROWS);
    uint slot = slotOf(row);
    uint e = row + 1u;
    while (e < limit && slotOf(e) == slot) {
        e++;
    }
    return e;
}

// inRun says whether query q of the tile exists and belongs to rows [from, to).
bool inRun(Tile t, uint q, uint from, uint to) {
    uint row = t.row + q / TILE_HEADS;
    return row >= from && row < to && q % TILE_HEADS < t.heads;
}
