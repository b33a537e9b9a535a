#version 450
//variant attend_scores_matrix COOPERATIVE
//variant attend_scores_tiled DP4A
#extension GL_GOOGLE_include_directive : require

// attend_scores.comp by matrix products (matrix.glsl), for many queries: four subgroups take 16 positions of the block
// each, for all queries of the tile. Queries and keys go through shared memory a few channels at a time, and the sums
// leave it the same way.

#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require

layout(local_size_x_id = 0) in;
layout(constant_id = 4) const bool CAP = false;
layout(constant_id = 5) const bool ALIBI = false;
layout(constant_id = 6) const uint SUBGROUP = 32u; // a quarter of the workgroup
const uint THREADS = 4u * SUBGROUP;

#define TABLES 8
#define STATUS 9
#include "numerics.glsl"
#define PRODUCTS 11
#include "dot.glsl"
#include "attend.glsl"
#include "status.glsl"

layout(std430, set = 0, binding = 1) readonly buffer Queries { uvec4 queries[]; }; // heads.comp
layout(std430, set = 0, binding = 2) readonly buffer Cache { uvec4 cache[]; };

#include "attend_score.glsl"
#include "attend_record.glsl"

const uint TILES = (TILE + 15u) / 16u;        // of 16 queries
const uint STEP = HDV > 8u ? 8u : (HDV + 1u) / 2u * 2u; // vectors of a limb staged at a time, an even number
const uint PITCH = 2u * STEP + 1u;            // two limbs; odd, to keep neighbours in other banks
const uint KEYS = TILES * 16u * PITCH;        // where the keys begin
const uint STAGED = KEYS + BLOCK * PITCH;
const uint SUM_PITCH = BLOCK / 4u;            // vectors of a row of sums
const uint SUM_PLANE = TILES * 16u * SUM_PITCH;

shared uvec4 stage[STAGED > 3u * SUM_PLANE ? STAGED : 3u * SUM_PLANE];
#define MATRICES stage
#include "matrix.glsl"

// fill stages vectors [c, c + STEP) of each limb of queries and keys, zeros beyond HDV.
void fill(Tile t, uint from, uint to, uint base, uint c) {
    for (uint i = gl_LocalInvocationID.x; i < TILES * 16u * 2u * STEP; i += THREADS) {
        uint q = i / (2u * STEP);
        uint limb = i / STEP % 2u;
        uint v = c + i % STEP;
        uvec4 x = uvec4(0u);
        if (q < TILE && inRun(t, q, from, to) && v < HDV) {
            x = queries[((t.row + q / TILE_HEADS) * heads + t.head + q % TILE_HEADS) * (2u * HDV + 1u) + limb * HDV + v];
        }
        stage[q * PITCH + limb * STEP + i % STEP] = x;
    }
    for (uint i = gl_LocalInvocationID.x; i < BLOCK * 2u * STEP; i += THREADS) {
        uint p = i % BLOCK;
        uint limb = i / BLOCK % 2u;
        uint v = i / (2u * BLOCK);
        uvec4 x = c + v < HDV ? cache[base + limb * LIMB_VECTORS + (c + v) * BLOCK + p] : uvec4(0u);
        stage[KEYS + p * PITCH + limb * STEP + v] = x;
    }
}

void run(Tile t, uint from, uint to) {
    uint block = firstBlock(positionOf(from)) + gl_WorkGroupID.x;
    if (block * BLOCK > uint(positionOf(to - 1u))) {
        return;
    }
    uint base = cacheBlock(slotOf(from), t.kvHead, block);
    SUMS high[TILES], middle[TILES], low[TILES];
    BY_MATRIX for (uint m = 0u; m < TILES; m++) {
        high[m] = noSums();
        middle[m] = noSums();
        low[m] = noSums();
    }
    for (uint c = 0u; c < HDV; c += STEP) {
        barrier();
        fill(t, from, to, base, c);
        barrier();
        uint key = KEYS + gl_SubgroupID * 16u * PITCH;
        for (uint k = 0u; k < STEP; k += 2u) {
            BY_MATRIX for (uint m = 0u; m < TILES; m++) {
                uint q = m * 16u * PITCH + k;
                high[m] = multiplied(high[m], q, PITCH, key + k, PITCH);
                middle[m] = multiplied(middle[m], q, PITCH, key + STEP + k, PITCH);
                middle[m] = multiplied(middle[m], q + STEP, PITCH, key + k, PITCH);
                low[m] = multiplied(low[m], q + STEP, PITCH, key + STEP + k, PITCH);
            }
        }
    }
    barrier();
    BY_MATRIX for (uint m = 0u; m < TILES; m++) {
        uint at = m * 16u * SUM_PITCH + gl_SubgroupID * 4u;
        store(high[m], at, SUM_PITCH);
        store(middle[m], SUM_PLANE + at, SUM_PITCH);
        store(low[m], 2u * SUM_PLANE + at, SUM_PITCH);
    }
    for (uint q = gl_LocalInvocationID.x; q < TILE; q += THREADS) {
        if (inRun(t, q, from, to)) {
            queryExp[q] = int(queries[((t.row + q / TILE_HEADS) * heads + t.head + q % TILE_HEADS) * (2u * HDV + 1u) + 2u * HDV].x);
            highest[q] = 0u;
        }
    }
    barrier();
    // A subgroup is within a row of sums: the size of either divides the other's.
    for (uint i = gl_LocalInvocationID.x; i < TILE * BLOCK; i += THREADS) {
        uint q = i / BLOCK;
        uint p = i % BLOCK;
        if (inRun(t, q, from, to)) {
            uint at = q * SUM_PITCH + p / 4u;
            ivec3 sums = ivec3(stage[at][p % 4u], stage[SUM_PLANE + at][p % 4u], stage[2u * SUM_PLANE + at][p % 4u]);
            float keyScale = pow2(int(cache[base + 4u * LIMB_VECTORS + p / 4u][p % 4u]));
            record(t, q, block, p, sums, keyScale);
        }
    }
    barrier();
    recordMaxima(t, from, to, block, THREADS);
}

void main() {
    Tile t = tileOf(gl_WorkGroupID.y, gl_WorkGroupID.z);
    uint to;
    for (uint from = t.row; from < min(end, t.row + TILE_ROWS); from = to) {
        to = runEnd(t, from);
        if (slotOf(from) != NO_SLOT) {
            run(t, from, to);
        }
    }
}
