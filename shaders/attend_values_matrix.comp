#version 450
//variant attend_values_matrix COOPERATIVE
//variant attend_values_tiled DP4A
#extension GL_GOOGLE_include_directive : require

// attend_values.comp by matrix products (matrix.glsl), for many queries: four subgroups take 16 channels each, for all
// queries of the tile.

#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require

layout(local_size_x_id = 0) in;
layout(constant_id = 4) const uint CHANNEL_TILES = 1u; // of 64 channels
layout(constant_id = 5) const bool WHOLE = true;       // splits = 1
layout(constant_id = 6) const uint SUBGROUP = 32u;     // a quarter of the workgroup
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

const uint VECTORS = 13u;               // of a block of weights: three limbs, then their count and exponent
const uint TILES = (TILE + 15u) / 16u;  // of 16 queries
const uint QUERIES = TILES * 16u;
const uint PITCH = 5u;                  // of 64 positions; odd, to keep neighbours in other banks
const uint VALUES = 3u * QUERIES * PITCH;         // where the values begin: [limbs][64 channels]
const uint SUMS_AT = VALUES + 2u * 64u * PITCH;   // and the sums: [subgroups][limbs][16 queries][4 vectors]
const uint MINE = 256u / SUBGROUP;      // sums of a tile for each invocation

shared uvec4 stage[SUMS_AT + 4u * 3u * 64u];
shared ivec2 info[QUERIES]; // count of limbs and exponent
shared int top[QUERIES];    // X
shared uint mostLimbs;

#define MATRICES stage
#include "matrix.glsl"

uvec2 total[TILES * MINE];

const uint WEIGHT_LOADS = (QUERIES * VECTORS + THREADS - 1u) / THREADS;
const uint VALUE_LOADS = 512u / THREADS;
uvec4 loadedWeights[WEIGHT_LOADS], loadedValues[VALUE_LOADS];

// fetch loads the weights of a block and its values from channel on.
void fetch(Tile t, uint from, uint to, uint block, uint channel) {
    [[unroll]] for (uint n = 0u; n < WEIGHT_LOADS; n++) {
        uint i = gl_LocalInvocationID.x + n * THREADS;
        uint q = i / VECTORS;
        uint row = t.row + q / TILE_HEADS;
        uvec4 v = uvec4(0u);
        if (q < TILE && inRun(t, q, from, to) && block >= firstBlock(positionOf(row)) && block * BLOCK <= uint(positionOf(row))) {
            uint word = rowHead(row, t.head + q % TILE_HEADS) * stride + (block - firstBlock(positionOf(row))) * BLOCK;
            v = weights[word / 4u + i % VECTORS];
        }
        loadedWeights[n] = v;
    }
    uint at = cacheBlock(slotOf(from), t.kvHead, block) + 2u * LIMB_VECTORS;
    [[unroll]] for (uint n = 0u; n < VALUE_LOADS; n++) {
        uint i = gl_LocalInvocationID.x + n * THREADS;
        uint c = i % 64u;
        loadedValues[n] = channel + c < HDP ? cache[at + i / 256u * LIMB_VECTORS + i / 64u % 4u * HDP + channel + c] : uvec4(0u);
    }
}

// fill stages what was loaded.
void fill() {
    [[unroll]] for (uint n = 0u; n < WEIGHT_LOADS; n++) {
        uint i = gl_LocalInvocationID.x + n * THREADS;
        uint q = i / VECTORS;
        uint k = i % VECTORS;
        uvec4 v = loadedWeights[n];
        if (q >= QUERIES) {
            break;
        }
        if (k < 12u) {
            stage[(k / 4u * QUERIES + q) * PITCH + k % 4u] = v;
        } else {
            info[q] = ivec2(min(v.x, 3u), v.y); // a row that has failed may hold any count
            atomicMax(mostLimbs, min(v.x, 3u));
        }
    }
    [[unroll]] for (uint n = 0u; n < VALUE_LOADS; n++) {
        uint i = gl_LocalInvocationID.x + n * THREADS;
        stage[VALUES + (i / 256u * 64u + i % 64u) * PITCH + i / 64u % 4u] = loadedValues[n];
    }
}

// addBlock adds the staged block to the totals of the invocation.
void addBlock() {
    uint sumsAt = SUMS_AT + gl_SubgroupID * 3u * 64u;
    uint high = VALUES + gl_SubgroupID * 16u * PITCH;
    uint low = high + 64u * PITCH;
    BY_MATRIX for (uint m = 0u; m < TILES; m++) {
        [[dont_unroll]] for (uint l = 0u; l < mostLimbs; l++) {
            uint w = (l * QUERIES + m * 16u) * PITCH;
            SUMS s = multiplied(noSums(), w, PITCH, high, PITCH);
            s = times256(multiplied(s, w + 2u, PITCH, high + 2u, PITCH));
            s = multiplied(s, w, PITCH, low, PITCH);
            s = multiplied(s, w + 2u, PITCH, low + 2u, PITCH);
            store(s, sumsAt + l * 64u, 4u);
        }
        subgroupBarrier();
        BY_MATRIX for (uint i = 0u; i < MINE; i++) {
            uint e = i * SUBGROUP + gl_SubgroupInvocationID;
            uint q = m * 16u + e / 16u;
            uvec2 sum = uvec2(0u);
            [[dont_unroll]] for (uint l = 0u; l < uint(info[q].x); l++) {
                int part = int(stage[sumsAt + l * 64u + e / 4u][e % 4u]);
                sum = add64(left64(sum, 8u), widened(part));
            }
            total[m * MINE + i] = add64(total[m * MINE + i], shift64(sum, info[q].y - top[q] + 12));
        }
        subgroupBarrier();
    }
}

void run(Tile t, uint from, uint to, uint channel) {
    uint tid = gl_LocalInvocationID.x;
    for (uint i = 0u; i < TILES * MINE; i++) {
        total[i] = uvec2(0u);
    }
    barrier();
    for (uint q = tid; q < TILE; q += THREADS) {
        if (inRun(t, q, from, to)) {
            uint row = t.row + q / TILE_HEADS;
            top[q] = topExponent(rowHead(row, t.head + q % TILE_HEADS), positionOf(row));
        }
    }
    uint base = firstBlock(positionOf(from));
    uint count = uint(positionOf(to - 1u)) / BLOCK + 1u - base;
    uint share = (stride / BLOCK + TILE_ROWS / BLOCK + splits) / splits; // of all that a run can have
    uint b = base + gl_WorkGroupID.x * share;
    uint last = base + min(count, (gl_WorkGroupID.x + 1u) * share);
    if (b < last) {
        fetch(t, from, to, b, channel);
    }
    for (; b < last; b++) {
        barrier();
        if (tid == 0u) {
            mostLimbs = 0u;
        }
        barrier();
        fill();
        barrier();
        if (b + 1u < last) {
            fetch(t, from, to, b + 1u, channel); // on its way while this block is computed
        }
        addBlock();
    }
    for (uint i = 0u; i < TILES * MINE; i++) {
        uint e = i % MINE * SUBGROUP + gl_SubgroupInvocationID;
        uint q = i / MINE * 16u + e / 16u;
        uint c = channel + gl_SubgroupID * 16u + e % 16u;
        if (q < TILE && c < HD && inRun(t, q, from, to)) {
            uint row = t.row + q / TILE_HEADS;
            uint head = t.head + q % TILE_HEADS;
            if (WHOLE) {
                float denominator = denominatorOf(rowHead(row, head), positionOf(row));
                dst[(row * heads + head) * HD + c] = outputOf(total[i], top[q], denominator);
            } else {
                totals[(rowHead(row, head) * splits + gl_WorkGroupID.x) * HDP + c] = total[i];
            }
        }
    }
}

void main() {
    Tile t = tileOf(gl_WorkGroupID.y / CHANNEL_TILES, gl_WorkGroupID.z);
    uint channel = gl_WorkGroupID.y % CHANNEL_TILES * 64u;
    uint to;
    for (uint from = t.row; from < min(end, t.row + TILE_ROWS); from = to) {
        to = runEnd(t, from);
        if (slotOf(from) != NO_SLOT) {
            run(t, from, to, channel);
        }
    }
}
