#version 450
//variant attend_values_matrix COOPERATIVE
//variant attend_values_tiled DP4A
#extension GL_GOOGLE_include_directive : require

// attend_values.comp by matrix products (matrix.glsl), for many queries: each of four subgroups takes 16 queries of the tile
// for all 64 channels.
//
// Weights of a block with two limbs have a third, the highest, that is 0.

#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_basic : require

layout(local_size_x_id = 0) in;
layout(constant_id = 4) const uint CHANNEL_TILES = 1u; // of 64 channels
layout(constant_id = 5) const bool WHOLE = true;       // splits = 1
layout(constant_id = 6) const uint SUBGROUP = 32u;     // a quarter of the workgroup, at most 64
const uint THREADS = 4u * SUBGROUP;

#define TABLES 8
#include "numerics.glsl"
#define PRODUCTS 11
#include "dot.glsl"
#include "attend.glsl"
#include "int64.glsl"
#include "fixed.glsl"

layout(std430, set = 0, binding = 2) readonly buffer Cache { uvec4 cache[]; };
layout(std430, set = 0, binding = 3) readonly buffer Weights { uvec4 weights[]; }; // attend_weights.comp
layout(std430, set = 0, binding = 6) writeonly buffer Totals { uvec2 totals[]; };
layout(std430, set = 0, binding = 7) writeonly buffer Dst { float dst[]; };

#include "attend_output.glsl"
#include "attend_partials.glsl"

const uint PITCH = 5u;                       // of 64 positions; odd, to keep neighbours in other banks
const uint LIMB = 16u * PITCH;               // of the weights of 16 queries
const uint OWN = 3u * LIMB;                  // their weights
const uint VALUES = 4u * OWN;                // where the values begin: [limbs][64 channels]
const uint WORDS = VALUES + 2u * 64u * PITCH; // and a word of each query for each subgroup
const uint MINE = 64u / SUBGROUP;            // vectors of a limb of weights for each invocation
const uint VALUE_LOADS = 512u / THREADS;

shared uvec4 stage[WORDS + 4u * 4u];

#define MATRICES stage
#include "matrix.glsl"

// A query, with the blocks it sees and where block 0 would lie in weights.
struct Query {
    uint begin, end;
    uint at;
};

Query loads[MINE];       // of which the invocation loads weights
uvec2 loadInfo[MINE];    // limbs, 0 for none, and exponent of the block to load next
uvec4 loadedWeights[3u * MINE], loadedValues[VALUE_LOADS];

// An invocation below 16 has a query of its subgroup, or several where it has fewer invocations.
const uint OWNED = SUBGROUP < 16u ? 16u / SUBGROUP : 1u;
Query owned[OWNED];
int top[OWNED];                         // X
uvec2 ownedInfo[OWNED], nextInfo[OWNED]; // of the block at hand and of the one after

LEFT staged[6];                 // weights of the block at hand: [limbs][halves of the block]

#ifdef COOPERATIVE
#define EACH_TILE(f) f(0u) f(1u) f(2u) f(3u)
#else
#define EACH_TILE(f) [[dont_unroll]] for (uint each = 0u; each < 4u; each++) { f(each) }
#endif

// queryOf is query q of the tile; one that is not of the run sees nothing.
Query queryOf(Tile t, uint q, uint from, uint to) {
    uint row = t.row + q / TILE_HEADS;
    if (q >= TILE || !inRun(t, q, from, to)) {
        return Query(0u, 0u, 0u);
    }
    uint begin = firstBlock(positionOf(row));
    return Query(begin, uint(positionOf(row)) / BLOCK + 1u, rowHead(row, t.head + q % TILE_HEADS) * (stride / 4u) - begin * (BLOCK / 4u));
}

// infoOf is the number of limbs and the exponent of the weights of a block.
uvec2 infoOf(Query q, uint block) {
    return block >= q.begin && block < q.end ? weights[q.at + block * (BLOCK / 4u) + 12u].xy : uvec2(0u);
}

// ownedBy is which of the 16 queries owned[i] is, vectorOf the vector of a limb, four for each of the 16, that loads[i] loads.
uint ownedBy(uint i) { return i * SUBGROUP + gl_SubgroupInvocationID; }

uint vectorOf(uint i) { return i * SUBGROUP + gl_SubgroupInvocationID; }

// start prepares for fetching from a block on.
void start(Tile t, uint from, uint to, uint block) {
    uint first16 = gl_SubgroupID * 16u;
    BY_MATRIX for (uint i = 0u; i < MINE; i++) {
        loads[i] = queryOf(t, first16 + vectorOf(i) / 4u, from, to);
        loadInfo[i] = infoOf(loads[i], block);
    }
    BY_MATRIX for (uint i = 0u; i < OWNED; i++) {
        owned[i] = Query(0u, 0u, 0u);
        top[i] = 0;
        if (ownedBy(i) < 16u) {
            owned[i] = queryOf(t, first16 + ownedBy(i), from, to);
        }
        if (owned[i].end != 0u) {
            uint q = first16 + ownedBy(i);
            uint row = t.row + q / TILE_HEADS;
            top[i] = topExponent(rowHead(row, t.head + q % TILE_HEADS), positionOf(row));
        }
        nextInfo[i] = infoOf(owned[i], block);
    }
}

// fetch loads the weights of a block and its values, which begin at vector at for a channel.
void fetch(uint block, uint at, uint channel) {
    [[unroll]] for (uint n = 0u; n < VALUE_LOADS; n++) {
        uint i = gl_LocalInvocationID.x + n * THREADS;
        uint c = channel + i % 64u;
        loadedValues[n] = c < HDP ? cache[at + i / 256u * LIMB_VECTORS + i / 64u % 4u * HDP + c] : uvec4(0u);
    }
    BY_MATRIX for (uint i = 0u; i < MINE; i++) {
        uint count = loadInfo[i].x;
        loadInfo[i] = infoOf(loads[i], block + 1u);
        [[unroll]] for (uint l = 0u; l < 3u; l++) {
            loadedWeights[3u * i + l] = uvec4(0u);
        }
        if (count != 0u) {
            uint v = loads[i].at + block * (BLOCK / 4u) + vectorOf(i) % 4u;
            uint last = count == 3u ? 8u : 4u;
            loadedWeights[3u * i + 2u] = weights[v + last];
            loadedWeights[3u * i + 1u] = weights[v + last - 4u];
            if (count == 3u) {
                loadedWeights[3u * i] = weights[v];
            }
        }
    }
}

// fill stages what was loaded for a block.
void fill(uint block) {
    [[unroll]] for (uint n = 0u; n < VALUE_LOADS; n++) {
        uint i = gl_LocalInvocationID.x + n * THREADS;
        stage[VALUES + (i / 256u * 64u + i % 64u) * PITCH + i / 64u % 4u] = loadedValues[n];
    }
    BY_MATRIX for (uint i = 0u; i < MINE; i++) {
        uint at = gl_SubgroupID * OWN + vectorOf(i) / 4u * PITCH + vectorOf(i) % 4u;
        [[unroll]] for (uint l = 0u; l < 3u; l++) {
            stage[at + l * LIMB] = loadedWeights[3u * i + l];
        }
    }
    BY_MATRIX for (uint i = 0u; i < OWNED; i++) {
        ownedInfo[i] = nextInfo[i];
        nextInfo[i] = infoOf(owned[i], block + 1u);
    }
}

// Totals, of four tiles of 16 channels. Devices with matrices have 64-bit integers.
#ifdef COOPERATIVE
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#define WIDE int64_t
const WIDE ZERO = 0l;
uvec2 pairOf(WIDE v) { return uvec2(uint(v), uint(v >> 32)); }
#else
#define WIDE uvec2
const WIDE ZERO = uvec2(0u);
uvec2 pairOf(WIDE v) { return v; }
#endif

WIDE total[4u * MATRIX_SHARE];

// wordOf is what added takes for a shift by n <= 12: with exact, for n >= 0, a factor, else by how much 2^12 times the sum is
// shifted down, no more than what leaves nothing.
int wordOf(int n, bool exact) { return exact ? 1 << n : min(12 - n, 63); }

// added is total plus the shifted t * 2^16 + u, which is below 2^44.
WIDE added(WIDE total, int t, int u, int word, bool exact) {
#ifdef COOPERATIVE
    if (exact) {
        return total + int64_t(t) * int64_t(word << 16) + int64_t(u) * int64_t(word);
    }
    // A half is added and lost by way of one bit more.
    return total + (((int64_t(t) * int64_t(1 << 29) + int64_t(u) * int64_t(1 << 13)) >> word) + 1l >> 1);
#else
    uvec2 sum = add64(uvec2(t << 16, t >> 16), widened(u));
    return add64(total, shift64(sum, exact ? findMSB(word) : 12 - word));
#endif
}

SUMS joined(SUMS high, SUMS low) {
    SUMS s;
#define JOIN(i) SUM(s, i) = SUM(high, i) * 256 + SUM(low, i);
    EACH_SUM(JOIN)
    return s;
}

// addTile adds the products of the staged weights and the values of 16 channels to the totals.
void addTile(uint tile, uint limbs, SUMS words, bool exact) {
    SUMS s[4]; // in units of 2^24, 2^16, 2^8 and 1
    BY_MATRIX for (uint i = 0u; i < 4u; i++) {
        s[i] = noSums();
    }
    uint at = VALUES + tile * 16u * PITCH;
    BY_MATRIX for (uint k = 0u; k < 2u; k++) {
        RIGHT high = right(at + 2u * k, PITCH);
        RIGHT low = right(at + 64u * PITCH + 2u * k, PITCH);
        if (limbs == 3u) {
            s[0] = plusProduct(s[0], staged[k], high);
            s[1] = plusProduct(s[1], staged[k], low);
        }
        s[1] = plusProduct(s[1], staged[2u + k], high);
        s[2] = plusProduct(s[2], staged[2u + k], low);
        s[2] = plusProduct(s[2], staged[4u + k], high);
        s[3] = plusProduct(s[3], staged[4u + k], low);
    }
    SUMS t = joined(s[0], s[1]);
    SUMS u = joined(s[2], s[3]);
#define ADD(i) total[tile * MATRIX_SHARE + i] = added(total[tile * MATRIX_SHARE + i], SUM(t, i), SUM(u, i), SUM(words, i), exact);
    if (exact) {
        EACH_SUM(ADD)
    } else {
        EACH_SUM(ADD)
    }
}

// putWord gives owned query i its word.
void putWord(uint i, int word) {
    if (ownedBy(i) < 16u) {
        stage[WORDS + gl_SubgroupID * 4u + ownedBy(i) / 4u][ownedBy(i) % 4u] = uint(word);
    }
}

// addBlock adds the staged block to the totals.
void addBlock() {
    uint limbs = 0u;
    bool exact = true; // no query is rounded
    BY_MATRIX for (uint i = 0u; i < OWNED; i++) {
        limbs = max(limbs, ownedInfo[i].x);
        exact = exact && (ownedInfo[i].x == 0u || int(ownedInfo[i].y) - top[i] + 12 >= 0);
    }
    limbs = subgroupMax(limbs);
    if (limbs == 0u) {
        return;
    }
    exact = subgroupMin(exact ? 1u : 0u) != 0u;
    BY_MATRIX for (uint i = 0u; i < OWNED; i++) {
        putWord(i, wordOf(ownedInfo[i].x == 0u ? 0 : int(ownedInfo[i].y) - top[i] + 12, exact));
    }
    subgroupBarrier();
    SUMS words = rowValues(WORDS + gl_SubgroupID * 4u);
    BY_MATRIX for (uint i = 0u; i < 6u; i++) {
        if (i >= 2u || limbs == 3u) {
            staged[i] = left(gl_SubgroupID * OWN + i / 2u * LIMB + i % 2u * 2u, PITCH);
        }
    }
#define ADD_TILE(tile) addTile(tile, limbs, words, exact);
    EACH_TILE(ADD_TILE)
}

// keepTile stores the totals or results of 16 channels from channel on, by way of 128 vectors of shared memory.
void keepTile(Tile t, uint from, uint to, uint tile, uint channel, SUMS scales, SUMS inverses) {
    uint at = gl_SubgroupID * 128u;
    SUMS a, b;
#define RESULT(i) SUM(a, i) = floatBitsToInt(outputBy(pairOf(total[tile * MATRIX_SHARE + i]), intBitsToFloat(SUM(scales, i)), intBitsToFloat(SUM(inverses, i))));
#define LOW(i) SUM(a, i) = int(pairOf(total[tile * MATRIX_SHARE + i]).x);
#define HIGH(i) SUM(b, i) = int(pairOf(total[tile * MATRIX_SHARE + i]).y);
    subgroupBarrier();
    if (WHOLE) {
        EACH_SUM(RESULT)
    } else {
        EACH_SUM(LOW)
        EACH_SUM(HIGH)
        store(b, at + 64u, 4u);
    }
    store(a, at, 4u);
    subgroupBarrier();
    for (uint e = gl_SubgroupInvocationID; e < 256u; e += SUBGROUP) {
        uint q = gl_SubgroupID * 16u + e / 16u;
        uint c = channel + e % 16u;
        if (q < TILE && c < HD && inRun(t, q, from, to)) {
            uint row = t.row + q / TILE_HEADS;
            uint head = t.head + q % TILE_HEADS;
            uint x = stage[at + e / 4u][e % 4u];
            if (WHOLE) {
                dst[(row * heads + head) * HD + c] = uintBitsToFloat(x);
            } else {
                totals[(rowHead(row, head) * splits + gl_WorkGroupID.x) * HDP + c] = uvec2(x, stage[at + 64u + e / 4u][e % 4u]);
            }
        }
    }
}

void run(Tile t, uint from, uint to, uint channel) {
    for (uint i = 0u; i < 4u * MATRIX_SHARE; i++) {
        total[i] = ZERO;
    }
    uint base = firstBlock(positionOf(from));
    uint count = uint(positionOf(to - 1u)) / BLOCK + 1u - base;
    uint share = (stride / BLOCK + TILE_ROWS / BLOCK + splits) / splits; // of all that a run can have
    uint b = base + gl_WorkGroupID.x * share;
    uint last = base + min(count, (gl_WorkGroupID.x + 1u) * share);
    uint at = cacheBlock(slotOf(from), t.kvHead, 0u) + 2u * LIMB_VECTORS;
    if (b < last) {
        start(t, from, to, b);
        fetch(b, at + b * BLOCK_VECTORS, channel);
    }
    for (; b < last; b++) {
        barrier();
        fill(b);
        barrier();
        if (b + 1u < last) {
            fetch(b + 1u, at + (b + 1u) * BLOCK_VECTORS, channel); // on its way while this block is computed
        }
        addBlock();
    }

    SUMS scales = noSums();
    SUMS inverses = noSums();
    if (WHOLE) {
        BY_MATRIX for (uint i = 0u; i < OWNED; i++) {
            putWord(i, floatBitsToInt(pow2(top[i] - 12)));
        }
        subgroupBarrier();
        scales = rowValues(WORDS + gl_SubgroupID * 4u);
        subgroupBarrier();
        BY_MATRIX for (uint i = 0u; i < OWNED; i++) {
            uint q = gl_SubgroupID * 16u + ownedBy(i);
            uint row = t.row + q / TILE_HEADS;
            if (owned[i].end != 0u) {
                putWord(i, floatBitsToInt(recipOf(denominatorOf(rowHead(row, t.head + q % TILE_HEADS), positionOf(row)))));
            }
        }
        subgroupBarrier();
        inverses = rowValues(WORDS + gl_SubgroupID * 4u);
    }
    barrier();
#define KEEP_TILE(tile) keepTile(t, from, to, tile, channel + tile * 16u, scales, inverses);
    EACH_TILE(KEEP_TILE)
    barrier();
}

void main() {
    Tile t = tileOf(gl_WorkGroupID.y / CHANNEL_TILES, gl_NumWorkGroups.z - 1u - gl_WorkGroupID.z); // those that see most first
    uint channel = gl_WorkGroupID.y % CHANNEL_TILES * 64u;
    uint to;
    for (uint from = t.row; from < min(end, t.row + TILE_ROWS); from = to) {
        to = runEnd(t, from);
        run(t, from, to, channel);
    }
}
