#version 450
//variant attend_group_dp4a DP4A
//variant attend_group_lut LUT
#extension GL_GOOGLE_include_directive : require

// Attention (attend.glsl) of one row for the heads of a tile, TILE_HEADS being a power of two, over a context short enough for
// the shared memory: keys and values are read once for them all. Workgroup (tile of heads, row).

layout(local_size_x_id = 0) in;
layout(constant_id = 4) const bool CAP = false;
layout(constant_id = 5) const bool ALIBI = false;
layout(constant_id = 6) const uint SPAN = 64u; // positions from the first block to the end of the last, at most
layout(constant_id = 7) const uint THREADS = 64u; // workgroup size
#define WEIGH_THREADS THREADS

#define TABLES 8
#define STATUS 9
#include "numerics.glsl"
#define PRODUCTS 11
#include "dot.glsl"
#include "attend.glsl"
#include "int64.glsl"
#include "fixed.glsl"
#include "status.glsl"
#include "attend_weigh.glsl"
#include "attend_score.glsl"
#include "attend_output.glsl"
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require

layout(std430, set = 0, binding = 1) readonly buffer Queries { uvec4 queries[]; }; // heads.comp
layout(std430, set = 0, binding = 2) readonly buffer Cache { uvec4 cache[]; };
layout(std430, set = 0, binding = 7) writeonly buffer Dst { float dst[]; };

#ifdef LUT
#define VECTORWISE [[dont_unroll]]
#else
#define VECTORWISE [[unroll]]
#endif
const uint AHEAD = 4u; // vectors of channels of a key on their way
const uint LANES = THREADS / TILE_HEADS; // that weigh the positions of a head: whole subgroups

// HALVES says that the values of a block are taken in halves: over few positions time goes into waiting, and fewer registers let
// more workgroups wait at a time. Over many it goes into reading the weights, which are then read once for both limbs of all values.
#ifdef LUT
const bool HALVES = false;
#else
const bool HALVES = SPAN <= 256u;
#endif

shared uvec4 query[TILE_HEADS * 2u * HDV];
shared float queryScale[TILE_HEADS];
shared uint highest[TILE_HEADS];      // score, ordered
shared uint highestExponent[TILE_HEADS];
shared uint quarters[TILE_HEADS * 4u]; // of 16 bits, of D
// For each head scores, then for each block three limbs of weights [4], their count and exponent.
shared uvec4 work[TILE_HEADS * SPAN / 4u];
shared uvec2 shares[THREADS]; // of totals

#define WEIGHTS work
#include "attend_sum.glsl"

Tile t;
uint slot, base, lo, hi, span;
int pos;

uint workOf(uint q) { return q * SPAN / 4u; }

// score computes the scores of all heads and their maxima.
void score() {
    uint tid = gl_LocalInvocationID.x;
    uint top[TILE_HEADS];
    [[unroll]] for (uint q = 0u; q < TILE_HEADS; q++) {
        top[q] = 0u;
    }
    for (uint i = tid; i < span; i += THREADS) {
        uint j = base * BLOCK + i;
        uint p = i % BLOCK;
        uint block = cacheBlock(slot, t.kvHead, j / BLOCK);
        ivec3 sums[TILE_HEADS];
        [[unroll]] for (uint q = 0u; q < TILE_HEADS; q++) {
            sums[q] = ivec3(0);
        }
        [[dont_unroll]] for (uint c0 = 0u; c0 < HDV; c0 += AHEAD) {
            uvec4 kh[AHEAD], kl[AHEAD];
            [[unroll]] for (uint c = 0u; c < AHEAD; c++) {
                uint at = block + min(c0 + c, HDV - 1u) * BLOCK + p;
                kh[c] = cache[at];
                kl[c] = cache[at + LIMB_VECTORS];
            }
            VECTORWISE for (uint c = 0u; c < AHEAD; c++) {
                if (c0 + c >= HDV) {
                    continue;
                }
                [[unroll]] for (uint q = 0u; q < TILE_HEADS; q++) {
                    uvec4 qh = query[2u * q * HDV + c0 + c];
                    uvec4 ql = query[(2u * q + 1u) * HDV + c0 + c];
                    sums[q].x = dot16(sums[q].x, qh, kh[c]);
                    sums[q].y = dot16(dot16(sums[q].y, qh, kl[c]), ql, kh[c]);
                    sums[q].z = dot16(sums[q].z, ql, kl[c]);
                }
            }
        }
        if (j >= lo && j < hi) {
            float keyScale = pow2(int(cache[block + 4u * LIMB_VECTORS + p / 4u][p % 4u]));
            [[unroll]] for (uint q = 0u; q < TILE_HEADS; q++) {
                if (q < t.heads) {
                    float s = scoreOf(sums[q], queryScale[q], keyScale, t.row, t.head + q, pos, j);
                    work[workOf(q) + i / 4u][i % 4u] = floatBitsToUint(s);
                    top[q] = max(top[q], ordered(s));
                }
            }
        }
    }
    [[unroll]] for (uint q = 0u; q < TILE_HEADS; q++) {
        uint m = subgroupMax(top[q]);
        if (subgroupElect()) {
            atomicMax(highest[q], m);
        }
    }
    barrier();
}

// weighAll makes the scores of every head weights, LANES invocations those of one head, and finds its X and D.
void weighAll() {
    uint tid = gl_LocalInvocationID.x;
    uint q = tid / LANES;
    bool real = q < t.heads;
    float m = real ? unordered(highest[q]) : 0.0;
    uint x = 0u;
    uvec2 sum = uvec2(0u);
    for (uint i = 0u; i < span; i += 4u * LANES) {
        uint vector = i / 4u + tid % LANES;
        uint j = base * BLOCK + 4u * vector;
        uint lane = tid % 16u;
        bool seen = real && 4u * vector < span;
        vec4 s = vec4(0.0);
        ivec4 e = ivec4(0);
        if (seen) {
            s = uintBitsToFloat(work[workOf(q) + vector]);
            e = ivec4(cache[cacheBlock(slot, t.kvHead, j / BLOCK) + 4u * LIMB_VECTORS + BLOCK / 4u + lane]);
        }
        Weights w = weigh(s, e, j, lo, seen ? hi : 0u, m);
        if (seen) {
            uint block = workOf(q) + vector - lane;
            for (uint l = 0u; l < 3u; l++) {
                work[block + 4u * l + lane / 4u][lane % 4u] = w.limbs[l];
            }
            if (lane == 0u) {
                work[block + 12u] = uvec4(w.count, w.exponent, 0u, 0u);
            }
        }
        x = max(x, uint(w.top - ZERO_EXPONENT));
        sum = add64(sum, w.sum);
        barrier();
    }
    x = subgroupMax(x);
    uvec4 d = subgroupAdd(uvec4(sum.x & 0xffffu, sum.x >> 16, sum.y & 0xffffu, sum.y >> 16));
    if (subgroupElect()) {
        atomicMax(highestExponent[q], x);
        for (uint i = 0u; i < 4u; i++) {
            atomicAdd(quarters[4u * q + i], d[i]);
        }
    }
    barrier();
}

int topOf(uint q) { return int(highestExponent[q]) + ZERO_EXPONENT; }

// denominatorOf is D * 2^-36.
float denominatorOf(uint q) {
    uvec2 d = uvec2(quarters[4u * q], quarters[4u * q + 2u]);
    d = add64(d, left64(uvec2(quarters[4u * q + 1u], 0u), 16u));
    return fromFixed36(add64(d, uvec2(0u, quarters[4u * q + 3u] << 16)));
}

// addBlock adds the sums of block b (attend_sum.glsl) to the totals of a channel, whose values begin at vector v.
void addBlock(inout uvec2 total[TILE_HEADS], uint b, uint v) {
    uvec4 high[4], low[4];
    for (uint g = 0u; g < 4u; g++) {
        high[g] = cache[v + g * HDP];
        low[g] = cache[v + LIMB_VECTORS + g * HDP];
    }
    [[unroll]] for (uint q = 0u; q < TILE_HEADS; q++) {
        uvec4 info = work[workOf(q) + 16u * b + 12u];
        if (q < t.heads && info.x != 0u) {
            uvec2 sum = blockSum(workOf(q) + 16u * b, info.x, high, low);
            total[q] = add64(total[q], shift64(sum, int(info.y) - topOf(q) + 12));
        }
    }
}

// addHalves is the same by halves of the block.
void addHalves(inout uvec2 total[TILE_HEADS], uint b, uint v) {
    ivec2 sums[TILE_HEADS * 3u]; // for each limb of the weights, by both of the values
    uint counts[TILE_HEADS];
    [[unroll]] for (uint q = 0u; q < TILE_HEADS; q++) {
        counts[q] = q < t.heads ? min(work[workOf(q) + 16u * b + 12u].x, 3u) : 0u;
        [[unroll]] for (uint l = 0u; l < 3u; l++) {
            sums[3u * q + l] = ivec2(0);
        }
    }
    [[dont_unroll]] for (uint g = 0u; g < 4u; g += 2u) {
        uvec4 high[2], low[2];
        [[unroll]] for (uint i = 0u; i < 2u; i++) {
            high[i] = cache[v + (g + i) * HDP];
            low[i] = cache[v + LIMB_VECTORS + (g + i) * HDP];
        }
        [[unroll]] for (uint i = 0u; i < 2u; i++) {
            [[unroll]] for (uint q = 0u; q < TILE_HEADS; q++) {
                [[unroll]] for (uint l = 0u; l < 3u; l++) {
                    if (l < counts[q]) {
                        uvec4 w = work[workOf(q) + 16u * b + 4u * l + g + i];
                        sums[3u * q + l].x = dot16(sums[3u * q + l].x, w, high[i]);
                        sums[3u * q + l].y = dot16(sums[3u * q + l].y, w, low[i]);
                    }
                }
            }
        }
    }
    [[unroll]] for (uint q = 0u; q < TILE_HEADS; q++) {
        if (counts[q] == 0u) {
            continue;
        }
        uvec2 sum = uvec2(0u);
        [[unroll]] for (uint l = 0u; l < 3u; l++) {
            if (l < counts[q]) {
                sum = add64(left64(sum, 8u), widened(256 * sums[3u * q + l].x + sums[3u * q + l].y));
            }
        }
        total[q] = add64(total[q], shift64(sum, int(work[workOf(q) + 16u * b + 12u].y) - topOf(q) + 12));
    }
}

// sumValues gives the outputs. Where there are fewer channels than invocations, several share the blocks of a channel.
void sumValues() {
    uint tid = gl_LocalInvocationID.x;
    const uint channels = min(HDP, THREADS);
    const uint sharers = max(THREADS / HDP, 1u);
    uint share = tid / channels;
    for (uint c0 = 0u; c0 < HDP; c0 += THREADS) {
        uint channel = c0 + tid % channels;
        uvec2 total[TILE_HEADS];
        [[unroll]] for (uint q = 0u; q < TILE_HEADS; q++) {
            total[q] = uvec2(0u);
        }
        if (share < sharers && channel < HDP) {
            for (uint b = share; b < span / BLOCK; b += sharers) {
                uint v = cacheBlock(slot, t.kvHead, base + b) + 2u * LIMB_VECTORS + channel;
                if (HALVES) {
                    addHalves(total, b, v);
                } else {
                    addBlock(total, b, v);
                }
            }
        }
        [[unroll]] for (uint q = 0u; q < TILE_HEADS; q++) {
            shares[tid] = total[q];
            barrier();
            if (q < t.heads && share == 0u && channel < HD) {
                uvec2 all = total[q];
                for (uint i = 1u; i < sharers; i++) {
                    all = add64(all, shares[tid + i * HDP]);
                }
                dst[(t.row * heads + t.head + q) * HD + channel] = outputOf(all, topOf(q), denominatorOf(q));
            }
            barrier();
        }
    }
}

void main() {
    t = tileOf(gl_WorkGroupID.x, gl_WorkGroupID.y);
    slot = slotOf(t.row);
    pos = positionOf(t.row);
    lo = lowest(pos);
    hi = uint(pos) + 1u;
    base = firstBlock(pos);
    span = blockCount(pos) * BLOCK;
    uint tid = gl_LocalInvocationID.x;
    for (uint i = tid; i < t.heads * 2u * HDV; i += THREADS) {
        query[i] = queries[(t.row * heads + t.head + i / (2u * HDV)) * (2u * HDV + 1u) + i % (2u * HDV)];
    }
    if (tid < TILE_HEADS) {
        uint head = t.head + min(tid, t.heads - 1u);
        queryScale[tid] = pow2(int(queries[(t.row * heads + head) * (2u * HDV + 1u) + 2u * HDV].x));
        highest[tid] = 0u;
        highestExponent[tid] = 0u;
        for (uint i = 0u; i < 4u; i++) {
            quarters[4u * tid + i] = 0u;
        }
    }
    barrier();

    score();
    for (uint q = 0u; q < t.heads; q++) {
        if (absBits(unordered(highest[q])) >= INF_BITS) {
            if (tid == 0u) {
                fail(op, t.row);
            }
            return;
        }
    }
    weighAll();
    sumValues();
}
