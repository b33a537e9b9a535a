#version 450
//variant attend_values_dp4a DP4A
//variant attend_values_lut LUT
#extension GL_GOOGLE_include_directive : require

// Weighted sums of values (attend.glsl). Workgroup (part of the context, tile of heads and 64 channels, tile of rows), an
// invocation for each channel. With one part it gives the output, else [rows][heads][splits][HDP] totals.

layout(local_size_x = 64) in;
layout(constant_id = 4) const uint CHANNEL_TILES = 1u; // of 64 channels
layout(constant_id = 5) const bool WHOLE = true;       // splits = 1

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

const uint VECTORS = 13u; // of a block of weights: three limbs, then their count and exponent

shared uvec4 staged[TILE * VECTORS];
shared int top[TILE]; // X

#define WEIGHTS staged
#include "attend_sum.glsl"

void run(Tile t, uint from, uint to, uint channel) {
    uint tid = gl_LocalInvocationID.x;
    uvec2 total[TILE];
    for (uint q = 0u; q < TILE; q++) {
        total[q] = uvec2(0u);
    }
    barrier();
    for (uint q = tid; q < TILE; q += gl_WorkGroupSize.x) {
        if (inRun(t, q, from, to)) {
            uint row = t.row + q / TILE_HEADS;
            top[q] = topExponent(rowHead(row, t.head + q % TILE_HEADS), positionOf(row));
        }
    }
    uint base = firstBlock(positionOf(from));
    uint count = uint(positionOf(to - 1u)) / BLOCK + 1u - base;
    uint share = (stride / BLOCK + TILE_ROWS / BLOCK + splits) / splits; // of all that a run can have
    for (uint b = base + gl_WorkGroupID.x * share; b < base + min(count, (gl_WorkGroupID.x + 1u) * share); b++) {
        barrier();
        for (uint i = tid; i < TILE * VECTORS; i += gl_WorkGroupSize.x) {
            uint q = i / VECTORS;
            uint row = t.row + q / TILE_HEADS;
            uvec4 v = uvec4(0u);
            if (inRun(t, q, from, to) && b >= firstBlock(positionOf(row)) && b * BLOCK <= uint(positionOf(row))) {
                uint word = rowHead(row, t.head + q % TILE_HEADS) * stride + (b - firstBlock(positionOf(row))) * BLOCK;
                v = weights[word / 4u + i % VECTORS];
            }
            staged[i] = v;
        }
        barrier();
        uint at = cacheBlock(slotOf(from), t.kvHead, b) + 2u * LIMB_VECTORS + min(channel, HDP - 1u);
        uvec4 high[4], low[4];
        for (uint g = 0u; g < 4u; g++) {
            high[g] = cache[at + g * HDP];
            low[g] = cache[at + LIMB_VECTORS + g * HDP];
        }
        for (uint q = 0u; q < TILE; q++) {
            uvec4 info = staged[q * VECTORS + 12u];
            if (info.x == 0u) {
                continue;
            }
            uvec2 sum = blockSum(q * VECTORS, info.x, high, low);
            total[q] = add64(total[q], shift64(sum, int(info.y) - top[q] + 12));
        }
    }
    barrier();
    for (uint q = 0u; q < TILE; q++) {
        if (channel < HD && inRun(t, q, from, to)) {
            uint row = t.row + q / TILE_HEADS;
            uint head = t.head + q % TILE_HEADS;
            if (WHOLE) {
                float denominator = denominatorOf(rowHead(row, head), positionOf(row));
                dst[(row * heads + head) * HD + channel] = outputOf(total[q], top[q], denominator);
            } else {
                totals[(rowHead(row, head) * splits + gl_WorkGroupID.x) * HDP + channel] = total[q];
            }
        }
    }
}

void main() {
    Tile t = tileOf(gl_WorkGroupID.y / CHANNEL_TILES, gl_WorkGroupID.z);
    uint channel = gl_WorkGroupID.y % CHANNEL_TILES * 64u + gl_LocalInvocationID.x;
    uint to;
    for (uint from = t.row; from < min(end, t.row + TILE_ROWS); from = to) {
        to = runEnd(t, from);
        run(t, from, to, channel);
    }
}
