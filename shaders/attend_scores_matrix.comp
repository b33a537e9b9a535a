#version 450
//variant attend_scores_matrix COOPERATIVE
//variant attend_scores_tiled DP4A
#extension GL_GOOGLE_include_directive : require

// attend_scores.comp by matrix products (matrix.glsl), for many queries. Workgroup (part of the context, tile of heads, tile of
// rows): each of four subgroups takes 16 queries of the tile for all positions. Keys go through shared memory block by
// block, all channels at once if they fit; then the queries stay in matrices.

#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require

layout(local_size_x_id = 0) in;
layout(constant_id = 4) const bool CAP = false;
layout(constant_id = 5) const bool ALIBI = false;
layout(constant_id = 6) const uint SUBGROUP = 32u; // a quarter of the workgroup, at most 64
layout(constant_id = 7) const uint PART = 1u;      // attend_parts.glsl
layout(constant_id = 8) const uint SLICE = 2u;     // vectors of a limb in shared memory at a time, an even number
const uint THREADS = 4u * SUBGROUP;

#define TABLES 8
#define STATUS 9
#include "numerics.glsl"
#define PRODUCTS 11
#include "dot.glsl"
#include "attend.glsl"
#include "attend_parts.glsl"
#include "status.glsl"

layout(std430, set = 0, binding = 1) readonly buffer Queries { uvec4 queries[]; }; // heads.comp
layout(std430, set = 0, binding = 2) readonly buffer Cache { uvec4 cache[]; };
layout(std430, set = 0, binding = 3) writeonly buffer Scores { vec4 scores[]; };  // [rows][heads][stride] from the first block
layout(std430, set = 0, binding = 4) writeonly buffer Maxima { uint maxima[]; }; // [rows][heads][maxParts] ordered

#include "attend_score.glsl"

const uint QUERIES = 64u;
const uint SLICES = (HDV + SLICE - 1u) / SLICE;
const uint STEPS = SLICE / 2u;              // matrices along the channels
const uint PITCH = 2u * SLICE + 1u;         // both limbs; odd, to keep neighbours in other banks
#ifdef COOPERATIVE
const uint KEYS = SLICES == 1u ? 0u : QUERIES * PITCH; // where the keys begin: the queries are in matrices by then, if they stay
#else
const uint KEYS = QUERIES * PITCH;
#endif
const uint SUMS_AT = KEYS + BLOCK * PITCH;  // and joined sums: [subgroups][2][16 queries][4 vectors]
const uint AT_ONCE = SLICES == 1u ? 1u : 4u; // matrices of 16 positions with sums in the making
const uint MINE = 64u / SUBGROUP;           // vectors of four joined sums for each invocation

shared uvec4 stage[SUMS_AT + 4u * 2u * 64u];
shared vec4 keyScale[BLOCK / 4u];
shared uint highest[QUERIES];
#define MATRICES stage
#include "matrix.glsl"

// A query, of whose scores an invocation keeps a part.
struct Query {
    uint row, head;
    int pos;
    uint lo;    // lowest(pos)
    uint begin; // firstBlock(pos); beyond all blocks for a query that is not of the run
    uint at;    // where position 0 would lie in scores, in vectors
    float scale;
    uint best;  // the largest of the scores, ordered
};

uint queryAt(Tile t, uint q) { return ((t.row + q / TILE_HEADS) * heads + t.head + q % TILE_HEADS) * (2u * HDV + 1u); }

// fillQueries stages the vectors of each limb from c on, zeros beyond HDV.
void fillQueries(Tile t, uint from, uint to, uint c) {
    for (uint i = gl_LocalInvocationID.x; i < QUERIES * 2u * SLICE; i += THREADS) {
        uint q = i / (2u * SLICE);
        uint limb = i / SLICE % 2u;
        uint v = c + i % SLICE;
        bool seen = q < TILE && inRun(t, q, from, to) && v < HDV;
        stage[q * PITCH + i % (2u * SLICE)] = seen ? queries[queryAt(t, q) + limb * HDV + v] : uvec4(0u);
    }
}

const uint KEY_LOADS = BLOCK * 2u * SLICE / THREADS;
const uint EXPONENT_LOADS = (BLOCK + THREADS - 1u) / THREADS;
uvec4 loadedKeys[KEY_LOADS];
int loadedExponents[EXPONENT_LOADS];

// fetchKeys loads the same vectors of the keys of the block of the cache at base, and their exponents; fillKeys stages them.
void fetchKeys(uint base, uint c) {
    [[unroll]] for (uint n = 0u; n < KEY_LOADS; n++) {
        uint i = gl_LocalInvocationID.x + n * THREADS;
        uint limb = i / BLOCK % 2u;
        uint v = c + i / (2u * BLOCK);
        loadedKeys[n] = v < HDV ? cache[base + limb * LIMB_VECTORS + v * BLOCK + i % BLOCK] : uvec4(0u);
    }
    [[unroll]] for (uint n = 0u; n < EXPONENT_LOADS; n++) {
        uint p = (gl_LocalInvocationID.x + n * THREADS) % BLOCK;
        loadedExponents[n] = int(cache[base + 4u * LIMB_VECTORS + p / 4u][p % 4u]);
    }
}

void fillKeys() {
    [[unroll]] for (uint n = 0u; n < KEY_LOADS; n++) {
        uint i = gl_LocalInvocationID.x + n * THREADS;
        uint limb = i / BLOCK % 2u;
        stage[KEYS + i % BLOCK * PITCH + limb * SLICE + i / (2u * BLOCK)] = loadedKeys[n];
    }
    [[unroll]] for (uint n = 0u; n < EXPONENT_LOADS; n++) {
        uint p = gl_LocalInvocationID.x + n * THREADS;
        if (p < BLOCK) {
            keyScale[p / 4u][p % 4u] = pow2(loadedExponents[n]);
        }
    }
}

LEFT limbs[2u * STEPS]; // of the queries of the subgroup: [steps][limbs]

void loadQueries() {
    BY_MATRIX for (uint i = 0u; i < 2u * STEPS; i++) {
        limbs[i] = left(gl_SubgroupID * 16u * PITCH + i % 2u * SLICE + i / 2u * 2u, PITCH);
    }
}

// joined has the bits of the float c of each of the sums H, M and L.
SUMS joined(SUMS high, SUMS middle, SUMS low) {
    SUMS c;
#define JOIN(i) SUM(c, i) = floatBitsToInt(joinedSums(SUM(high, i), SUM(middle, i), SUM(low, i)));
    EACH_SUM(JOIN)
    return c;
}

// orderedScore is ordered(s) of a score, which is never -0.
uint orderedScore(float s) {
    int bits = floatBitsToInt(s);
    return uint(bits ^ (bits >> 31 | int(0x80000000u)));
}

// keep stores the scores of a query for positions [j, j + 4) of a block that it sees, from the joined sums.
void keep(inout Query q, uint j, vec4 c, vec4 keyScales) {
    vec4 s;
    [[unroll]] for (uint i = 0u; i < 4u; i++) {
        bool visible = j + i >= q.lo && j + i <= uint(q.pos);
        s[i] = 0.0;
        if (visible || !CAP) { // a cap fails for what is not finite
            s[i] = scoreOf(c[i], q.scale, keyScales[i], q.row, q.head, q.pos, j + i);
        }
        q.best = max(q.best, visible ? orderedScore(s[i]) : 0u);
    }
    scores[q.at + j / 4u] = s;
}

void run(Tile t, uint from, uint to) {
    uint firstSeen = firstBlock(positionOf(from));
    uint part = firstSeen / PART + gl_WorkGroupID.x;
    uint b = max(part * PART, firstSeen);
    uint last = min((part + 1u) * PART, uint(positionOf(to - 1u)) / BLOCK + 1u);
    if (b >= last) {
        return;
    }
    Query mine[MINE];
    BY_MATRIX for (uint i = 0u; i < MINE; i++) {
        uint q = gl_SubgroupID * 16u + (i * SUBGROUP + gl_SubgroupInvocationID) / 4u;
        mine[i].begin = last;
        mine[i].best = 0u;
        if (q < TILE && inRun(t, q, from, to)) {
            mine[i].row = t.row + q / TILE_HEADS;
            mine[i].head = t.head + q % TILE_HEADS;
            mine[i].pos = positionOf(mine[i].row);
            mine[i].lo = lowest(mine[i].pos);
            mine[i].begin = firstBlock(mine[i].pos);
            mine[i].at = rowHead(mine[i].row, mine[i].head) * (stride / 4u) - mine[i].begin * (BLOCK / 4u);
            mine[i].scale = pow2(int(queries[queryAt(t, q) + 2u * HDV].x));
        }
    }
    barrier();
    for (uint q = gl_LocalInvocationID.x; q < QUERIES; q += THREADS) {
        highest[q] = 0u;
    }
    if (SLICES == 1u) {
        fetchKeys(cacheBlock(slotOf(from), t.kvHead, b), 0u);
        fillQueries(t, from, to, 0u);
        barrier();
        loadQueries();
    }
    uint sumsAt = SUMS_AT + gl_SubgroupID * 2u * 64u;
    for (; b < last; b++) {
        uint base = cacheBlock(slotOf(from), t.kvHead, b);
        [[dont_unroll]] for (uint n0 = 0u; n0 < 4u; n0 += AT_ONCE) {
            SUMS high[AT_ONCE], middle[AT_ONCE], low[AT_ONCE];
            BY_MATRIX for (uint n = 0u; n < AT_ONCE; n++) {
                high[n] = noSums();
                middle[n] = noSums();
                low[n] = noSums();
            }
            [[dont_unroll]] for (uint s = 0u; s < SLICES; s++) {
                if (n0 == 0u) {
                    barrier();
                    if (SLICES > 1u) {
                        fetchKeys(base, s * SLICE);
                        fillQueries(t, from, to, s * SLICE);
                    }
                    fillKeys();
                    barrier();
                    if (SLICES > 1u) {
                        loadQueries();
                    }
                    if (SLICES == 1u && b + 1u < last) {
                        fetchKeys(base + BLOCK_VECTORS, 0u); // on their way while this block is computed
                    }
                }
                BY_MATRIX for (uint n = 0u; n < AT_ONCE; n++) {
                    uint key = KEYS + (n0 + n) * 16u * PITCH;
                    BY_MATRIX for (uint k = 0u; k < STEPS; k++) {
                        RIGHT kh = right(key + 2u * k, PITCH);
                        RIGHT kl = right(key + SLICE + 2u * k, PITCH);
                        high[n] = plusProduct(high[n], limbs[2u * k], kh);
                        middle[n] = plusProduct(middle[n], limbs[2u * k], kl);
                        middle[n] = plusProduct(middle[n], limbs[2u * k + 1u], kh);
                        low[n] = plusProduct(low[n], limbs[2u * k + 1u], kl);
                    }
                }
            }
            BY_MATRIX for (uint n = 0u; n < AT_ONCE; n++) {
                uint at = sumsAt + (n0 + n) % 2u * 64u; // two places in turn: one barrier between uses is enough
                store(joined(high[n], middle[n], low[n]), at, 4u);
                subgroupBarrier();
                BY_MATRIX for (uint i = 0u; i < MINE; i++) {
                    uint v = i * SUBGROUP + gl_SubgroupInvocationID;
                    uint j = b * BLOCK + (n0 + n) * 16u + v % 4u * 4u;
                    if (b >= mine[i].begin && b * BLOCK <= uint(mine[i].pos)) {
                        keep(mine[i], j, uintBitsToFloat(stage[at + v]), keyScale[(n0 + n) * 4u + v % 4u]);
                    }
                }
            }
        }
    }
    BY_MATRIX for (uint i = 0u; i < MINE; i++) {
        atomicMax(highest[gl_SubgroupID * 16u + (i * SUBGROUP + gl_SubgroupInvocationID) / 4u], mine[i].best);
    }
    barrier();
    for (uint q = gl_LocalInvocationID.x; q < TILE; q += THREADS) {
        uint row = t.row + q / TILE_HEADS;
        if (inRun(t, q, from, to) && part >= firstPart(positionOf(row)) && part * PART * BLOCK <= uint(positionOf(row))) {
            maxima[rowHead(row, t.head + q % TILE_HEADS) * maxParts() + part - firstPart(positionOf(row))] = highest[q];
        }
    }
}

void main() {
    Tile t = tileOf(gl_WorkGroupID.y, gl_NumWorkGroups.z - 1u - gl_WorkGroupID.z); // those that see most first
    uint to;
    for (uint from = t.row; from < min(end, t.row + TILE_ROWS); from = to) {
        to = runEnd(t, from);
        run(t, from, to);
    }
}
