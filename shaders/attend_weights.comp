#version 450
#extension GL_GOOGLE_include_directive : require

// Attention weights (attend.glsl), in place of the scores. Workgroup (chunk, head, row), an invocation for each four
// positions of the chunk.

#define WEIGH_THREADS 256 // CHUNK / 4
layout(local_size_x = WEIGH_THREADS) in;

#define TABLES 8
#define STATUS 9
#include "numerics.glsl"
#include "dot.glsl"
#include "attend.glsl"
#include "int64.glsl"
#include "fixed.glsl"
#include "reduce.glsl"
#include "reduce64.glsl"
#include "status.glsl"
#include "attend_weigh.glsl"

layout(std430, set = 0, binding = 2) readonly buffer Cache { ivec4 cache[]; };
// Scores, then for each block the limbs of its weights [3][16 words], how many there are, and their exponent.
layout(std430, set = 0, binding = 3) buffer Scores { uvec4 scores[]; };
layout(std430, set = 0, binding = 4) readonly buffer Maxima { uint maxima[]; };
layout(std430, set = 0, binding = 5) writeonly buffer Partials { uvec4 partials[]; }; // [rows][heads][chunks]: D, then X

void main() {
    uint row = first + gl_WorkGroupID.z;
    uint head = gl_WorkGroupID.y;
    uint chunk = gl_WorkGroupID.x;
    uint slot = slotOf(row);
    int pos = positionOf(row);
    if (slot == NO_SLOT || chunk >= chunkCount(pos)) {
        return;
    }
    uint n = rowHead(row, head);
    uint tid = gl_LocalInvocationID.x;

    uint ordered = 0u;
    for (uint i = tid; i < blockCount(pos); i += WEIGH_THREADS) {
        ordered = max(ordered, maxima[n * (stride / BLOCK) + i]);
    }
    float m = unordered(workgroupMax(ordered));
    if (absBits(m) >= INF_BITS) {
        if (tid == 0u) {
            fail(op, row);
        }
        return;
    }

    uint vector = (n * stride + chunk * CHUNK) / 4u + tid;
    uint j = firstBlock(pos) * BLOCK + chunk * CHUNK + 4u * tid;
    bool seen = j / BLOCK <= uint(pos) / BLOCK; // a block with something visible
    uint lane = tid % 16u;
    vec4 s = vec4(0.0);
    ivec4 e = ivec4(0);
    if (seen) {
        s = uintBitsToFloat(scores[vector]);
        e = cache[cacheBlock(slot, head / (heads / kvHeads), j / BLOCK) + 4u * LIMB_VECTORS + BLOCK / 4u + lane];
    }
    Weights w = weigh(s, e, j, lowest(pos), uint(pos) + 1u, m);
    if (seen) {
        uint block = vector - lane;
        for (uint l = 0u; l < 3u; l++) {
            scores[block + 4u * l + lane / 4u][lane % 4u] = w.limbs[l];
        }
        if (lane == 0u) {
            scores[block + 12u] = uvec4(w.count, w.exponent, 0u, 0u);
        }
    }
    uint x = workgroupMax(uint(w.top - ZERO_EXPONENT));
    uvec2 sum = workgroupAdd64(w.sum);
    if (tid == 0u) {
        partials[n * maxChunks() + chunk] = uvec4(sum, x, 0u);
    }
}
