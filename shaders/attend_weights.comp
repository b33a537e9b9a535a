#version 450
//variant attend_weights
//variant attend_weights_shuffle SHUFFLE
#extension GL_GOOGLE_include_directive : require

// Attention weights (attend.glsl), in place of the scores. Workgroup (chunk, tile of heads, row): each UNIT invocations have a
// head, and take four positions each at a time.

layout(local_size_x_id = 0) in;
layout(constant_id = 4) const uint PART = 1u;      // attend_parts.glsl
layout(constant_id = 5) const uint THREADS = 256u; // workgroup size, UNIT for each head of the tile
#define WEIGH_THREADS THREADS

#define TABLES 8
#define STATUS 9
#include "numerics.glsl"
#include "attend.glsl"
#include "attend_parts.glsl"
#include "int64.glsl"
#include "fixed.glsl"
#include "status.glsl"
#include "attend_weigh.glsl"

layout(std430, set = 0, binding = 2) readonly buffer Cache { ivec4 cache[]; };
// Scores, then for each block the limbs of its weights [3][16 words], how many there are, and their exponent.
layout(std430, set = 0, binding = 3) buffer Scores { uvec4 scores[]; };
layout(std430, set = 0, binding = 4) readonly buffer Maxima { uint maxima[]; };
layout(std430, set = 0, binding = 5) writeonly buffer Partials { uvec4 partials[]; }; // [rows][heads][chunks]: D, then X

const uint UNIT = 32u;

// unitAdd64 sums pairs (int64.glsl) over a unit, modulo 2^64: by quarters of 16 bits, whose sums fit in 32.
uvec2 unitAdd64(uvec2 v) {
    uvec2 r = uvec2(groupAdd(v.x & 0xffffu, UNIT), 0u);
    r = add64(r, left64(uvec2(groupAdd(v.x >> 16, UNIT), 0u), 16u));
    r = add64(r, uvec2(0u, groupAdd(v.y & 0xffffu, UNIT)));
    return add64(r, uvec2(0u, groupAdd(v.y >> 16, UNIT) << 16));
}

void main() {
    uint row = first + gl_WorkGroupID.z;
    uint head = gl_WorkGroupID.y * (THREADS / UNIT) + gl_LocalInvocationID.x / UNIT;
    uint chunk = gl_WorkGroupID.x;
    uint slot = slotOf(row);
    int pos = positionOf(row);
    if (chunk >= chunkCount(pos)) {
        return;
    }
    uint n = rowHead(row, head);
    uint lane = gl_LocalInvocationID.x % UNIT;
    bool computed = head < heads;

    uint ordered = 0u;
    if (computed) {
        for (uint i = lane; i < partCount(pos); i += UNIT) {
            ordered = max(ordered, maxima[n * maxParts() + i]);
        }
    }
    float m = unordered(groupMax(ordered, UNIT));
    if (computed && absBits(m) >= INF_BITS) {
        computed = false;
        fail(op, row);
    }

    uint base = firstBlock(pos) * BLOCK + chunk * CHUNK;
    uint end = min(base + CHUNK, (uint(pos) / BLOCK + 1u) * BLOCK); // of the blocks with something visible
    uint vector = (n * stride + chunk * CHUNK) / 4u + lane;
    uint valueExp = cacheBlock(slot, min(head, heads - 1u) / (heads / kvHeads), 0u) + 4u * LIMB_VECTORS + BLOCK / 4u + lane % 16u;
    uint x = 0u;
    uvec2 sum = uvec2(0u);
    for (uint i = base; i < end; i += 4u * UNIT, vector += UNIT) {
        uint j = i + 4u * lane;
        bool seen = computed && j < end;
        vec4 s = vec4(0.0);
        ivec4 e = ivec4(0);
        if (seen) {
            s = uintBitsToFloat(scores[vector]);
            e = cache[valueExp + j / BLOCK * BLOCK_VECTORS];
        }
        Weights w = weigh(s, e, j, lowest(pos), seen ? uint(pos) + 1u : 0u, m);
        if (seen) {
            uint block = vector - lane % 16u;
            for (uint l = 0u; l < w.count; l++) {
                scores[block + 4u * l + lane % 16u / 4u][lane % 4u] = w.limbs[l];
            }
            if (lane % 16u == 0u) {
                scores[block + 12u] = uvec4(w.count, w.exponent, 0u, 0u);
            }
        }
        x = max(x, uint(w.top - ZERO_EXPONENT));
        sum = add64(sum, w.sum);
    }
    x = groupMax(x, UNIT);
    sum = unitAdd64(sum);
    if (computed && lane == 0u) {
        partials[n * maxChunks() + chunk] = uvec4(sum, x, 0u);
    }
}
