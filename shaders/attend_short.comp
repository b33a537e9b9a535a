#version 450
//variant attend_short_dp4a DP4A
//variant attend_short_lut LUT
#extension GL_GOOGLE_include_directive : require

// Attention (attend.glsl) of one row and head over a context short enough for the shared memory, in one dispatch.
// Workgroup (head, row).

layout(local_size_x_id = 0) in;
layout(constant_id = 4) const bool CAP = false;
layout(constant_id = 5) const bool ALIBI = false;
layout(constant_id = 6) const uint SPAN = 64u; // positions from the first block to the end of the last, at most
layout(constant_id = 7) const uint THREADS = 64u; // workgroup size, a multiple of 16
#define WEIGH_THREADS THREADS

#define CACHE 2
#define DST 7
#define TABLES 8
#define STATUS 9
#define PRODUCTS 11
#include "numerics.glsl"
#include "dot.glsl"
#include "attend.glsl"
#include "int64.glsl"
#include "fixed.glsl"
#include "reduce.glsl"
#include "reduce64.glsl"
#include "status.glsl"
#include "attend_weigh.glsl"
#include "attend_score.glsl"
#include "attend_output.glsl"

layout(std430, set = 0, binding = CACHE) readonly buffer Cache { uvec4 cache[]; };
layout(std430, set = 0, binding = DST) writeonly buffer Dst { float dst[]; };

shared uvec4 limbs[2u * HDV]; // of the query: high limbs, then low limbs
shared int queryExponent;
shared uvec4 work[SPAN / 4u]; // scores, then for each block three limbs of weights [4], their count and exponent
shared uvec2 parts[THREADS];  // of totals

uint row, head, kvHead, slot;
int pos;

layout(std430, set = 0, binding = 1) readonly buffer Queries { uvec4 queries[]; }; // heads.comp

// take copies the limbs of the query.
void take() {
    uint at = (row * heads + head) * (2u * HDV + 1u);
    for (uint i = gl_LocalInvocationID.x; i < 2u * HDV; i += THREADS) {
        limbs[i] = queries[at + i];
    }
    if (gl_LocalInvocationID.x == 0u) {
        queryExponent = int(queries[at + 2u * HDV].x);
    }
    barrier();
}

#define WEIGHTS work
#include "attend_sum.glsl"

uvec4 high[4], low[4];

// fetch loads the values of a channel of a block.
void fetch(uint block, uint channel) {
    uint at = cacheBlock(slot, kvHead, block) + 2u * LIMB_VECTORS + channel;
    for (uint g = 0u; g < 4u; g++) {
        high[g] = cache[at + g * HDP];
        low[g] = cache[at + LIMB_VECTORS + g * HDP];
    }
}

void main() {
    row = first + gl_WorkGroupID.y;
    head = gl_WorkGroupID.x;
    slot = slotOf(row);
    pos = positionOf(row);
    uint tid = gl_LocalInvocationID.x;
    kvHead = head / (heads / kvHeads);
    uint lo = lowest(pos);
    uint hi = uint(pos) + 1u;
    uint base = firstBlock(pos);
    uint span = blockCount(pos) * BLOCK;
    take();
    float queryScale = pow2(queryExponent);

    uint top = 0u;
    for (uint i = tid; i < span; i += THREADS) {
        uint j = base * BLOCK + i;
        uint p = i % BLOCK;
        uint block = cacheBlock(slot, kvHead, j / BLOCK);
        int keyExponent = int(cache[block + 4u * LIMB_VECTORS + p / 4u][p % 4u]);
        ivec3 sums = ivec3(0);
        STEPWISE for (uint c = 0u; c < HDV; c++) {
            uvec4 kh = cache[block + c * BLOCK + p];
            uvec4 kl = cache[block + LIMB_VECTORS + c * BLOCK + p];
            uvec4 qh = limbs[c];
            uvec4 ql = limbs[HDV + c];
            sums.x = dot16(sums.x, qh, kh);
            sums.y = dot16(dot16(sums.y, qh, kl), ql, kh);
            sums.z = dot16(sums.z, ql, kl);
        }
        if (j >= lo && j < hi) {
            float s = scoreOf(sums, queryScale, pow2(keyExponent), row, head, pos, j);
            work[i / 4u][i % 4u] = floatBitsToUint(s);
            top = max(top, ordered(s));
        }
    }
    float m = unordered(workgroupMax(top));
    if (absBits(m) >= INF_BITS) {
        if (tid == 0u) {
            fail(op, row);
        }
        return;
    }

    // Where there are fewer channels than invocations, several share the blocks of a channel. The first values are on their way
    // while the weights are made.
    uint sharers = max(THREADS / HDP, 1u);
    uint part = tid / min(HDP, THREADS);
    bool shares = part < sharers && part < span / BLOCK;
    if (shares) {
        fetch(base + part, tid % min(HDP, THREADS));
    }

    uint x = 0u;
    uvec2 sum = uvec2(0u);
    for (uint i = 0u; i < span; i += 4u * THREADS) {
        uint vector = i / 4u + tid;
        uint j = base * BLOCK + 4u * vector;
        uint lane = tid % 16u;
        bool seen = 4u * vector < span;
        vec4 s = vec4(0.0);
        ivec4 e = ivec4(0);
        if (seen) {
            s = uintBitsToFloat(work[vector]);
            e = ivec4(cache[cacheBlock(slot, kvHead, j / BLOCK) + 4u * LIMB_VECTORS + BLOCK / 4u + lane]);
        }
        Weights w = weigh(s, e, j, lo, hi, m);
        if (seen) {
            uint block = vector - lane;
            for (uint l = 0u; l < 3u; l++) {
                work[block + 4u * l + lane / 4u][lane % 4u] = w.limbs[l];
            }
            if (lane == 0u) {
                work[block + 12u] = uvec4(w.count, w.exponent, 0u, 0u);
            }
        }
        x = max(x, uint(w.top - ZERO_EXPONENT));
        sum = add64(sum, w.sum);
    }
    sum = workgroupMaxAdd64(x, sum);
    int X = int(x) + ZERO_EXPONENT;
    float inverse = recipOf(fromFixed36(sum));

    for (uint c0 = 0u; c0 < HDP; c0 += THREADS) {
        uint channel = c0 + tid % min(HDP, THREADS);
        uvec2 total = uvec2(0u);
        if (shares && channel < HDP) {
            if (c0 > 0u) {
                fetch(base + part, channel);
            }
            for (uint b = part; b < span / BLOCK; b += sharers) {
                uvec4 info = work[16u * b + 12u];
                uvec2 sum = blockSum(16u * b, info.x, high, low);
                if (b + sharers < span / BLOCK) {
                    fetch(base + b + sharers, channel);
                }
                if (info.x != 0u) {
                    total = add64(total, shift64(sum, int(info.y) - X + 12));
                }
            }
        }
        parts[tid] = total;
        barrier();
        if (part == 0u && channel < HD) {
            for (uint i = 1u; i < sharers; i++) {
                total = add64(total, parts[tid + i * HDP]);
            }
            dst[(row * heads + head) * HD + channel] = outputBy(total, pow2(X - 12), inverse);
        }
        barrier();
    }
}
