#version 450
//variant attend_short_dp4a DP4A
//variant attend_short_lut LUT
//variant attend_row_dp4a DP4A HEADS=6
//variant attend_row_lut LUT HEADS=6
#extension GL_GOOGLE_include_directive : require

// Attention (attend.glsl) of one row and head over a context short enough for the shared memory, in one dispatch.
// Workgroup (head, row).
//
// With HEADS it is that of a batch of one row, and makes limbs of the query, and of the key and value of the row's own position,
// for itself (heads.glsl). Those of that position it takes from there, since the first head of a group stores them in the cache
// meanwhile: the others read words of which the bytes of the other positions do not change.

layout(local_size_x_id = 0) in;
layout(constant_id = 4) const bool CAP = false;
layout(constant_id = 5) const bool ALIBI = false;
layout(constant_id = 6) const uint SPAN = 64u; // positions from the first block to the end of the last, at most
layout(constant_id = 7) const uint THREADS = 64u; // workgroup size, a multiple of 16
#define WEIGH_THREADS THREADS

#ifdef HEADS
layout(constant_id = 8) const uint ROPE = 0u;  // 0 none, 1 halves, 2 interleaved pairs
layout(constant_id = 9) const uint PAIRS = 1u; // rotary
#define CACHE 1
#define DST 2
#define TABLES 3
#define STATUS 4
#define SLOPES 5
#define PRODUCTS 13
#else
#define CACHE 2
#define DST 7
#define TABLES 8
#define STATUS 9
#define PRODUCTS 11
#endif
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

#ifdef HEADS
layout(std430, set = 0, binding = CACHE) buffer Cache { uvec4 cache[]; };
#else
layout(std430, set = 0, binding = CACHE) readonly buffer Cache { uvec4 cache[]; };
#endif
layout(std430, set = 0, binding = DST) writeonly buffer Dst { float dst[]; };

// The query, and with HEADS the key and the value: high limbs, then low limbs.
#ifdef HEADS
const uint PARTS = 3u;
#else
const uint PARTS = 1u;
#endif
shared uvec4 limbs[2u * PARTS * HDV];
shared int exponents[PARTS];
shared uvec4 work[SPAN / 4u]; // scores, then for each block three limbs of weights [4], their count and exponent
shared uvec2 parts[THREADS];  // of totals

uint row, head, kvHead, slot;
int pos;

#ifdef HEADS
#include "heads.glsl"
layout(std430, set = 0, binding = CACHE) buffer CacheWords { uint cacheWords[]; };

shared uint tops[PARTS];

const uint WORDS = 4u * HDV; // of a head
const uint PER = (PARTS * WORDS + THREADS - 1u) / THREADS;

vec4 inputs[PER];
uint stored[8u * PER]; // the words of the cache that hold values of other positions too: high and low limbs of four channels

// item is the word w of a part that an invocation has as item i; none for part PARTS.
void item(uint i, out uint part, out uint w) {
    part = min((i * THREADS + gl_LocalInvocationID.x) / WORDS, PARTS);
    w = (i * THREADS + gl_LocalInvocationID.x) % WORDS;
}

bool stores(uint part) { return part < PARTS && part != QUERY && head % (heads / kvHeads) == 0u; }

// load begins to make the limbs: what comes from memory.
void load() {
    for (uint i = 0u; i < PER; i++) {
        uint part, w;
        item(i, part, w);
        inputs[i] = vec4(0.0);
        if (part < PARTS) {
            inputs[i] = headWord(part, (part == QUERY ? head : kvHead) * HD, pos, w);
        }
        if (stores(part) && part == VALUE) {
            for (uint c = 0u; c < 4u; c++) {
                uint at = valueWord(4u * cacheBlock(slot, kvHead, uint(pos) / BLOCK), 4u * w + c, uint(pos) % BLOCK);
                stored[8u * i + c] = cacheWords[at];
                stored[8u * i + 4u + c] = cacheWords[at + 4u * LIMB_VECTORS];
            }
        }
    }
}

// store puts word w of the key or value into the cache.
void store(uint i, uint part, uint w, int exponent, ivec4 hi, ivec4 lo) {
    uint block = 4u * cacheBlock(slot, kvHead, uint(pos) / BLOCK);
    uint p = uint(pos) % BLOCK;
    if (w == 0u) {
        cacheWords[exponentWord(block, part == VALUE, p)] = uint(exponent);
    }
    if (part == KEY) {
        uint at = keyWord(block, w, p);
        cacheWords[at] = packed(hi);
        cacheWords[at + 4u * LIMB_VECTORS] = packed(lo);
        return;
    }
    int shift = int(8u * (p % 4u));
    for (uint c = 0u; c < 4u; c++) {
        uint at = valueWord(block, 4u * w + c, p);
        cacheWords[at] = bitfieldInsert(stored[8u * i + c], uint(hi[c]), shift, 8);
        cacheWords[at + 4u * LIMB_VECTORS] = bitfieldInsert(stored[8u * i + 4u + c], uint(lo[c]), shift, 8);
    }
}

// prepare makes the limbs; it reports what is not finite, and then says no.
bool prepare() {
    uint tid = gl_LocalInvocationID.x;
    uint part, w;
    if (tid < PARTS) {
        tops[tid] = 0u;
    }
    barrier();
    for (uint i = 0u; i < PER; i++) {
        item(i, part, w);
        vec4 v = inputs[i];
        if (part < PARTS) {
            atomicMax(tops[part], max(max(absBits(v.x), absBits(v.y)), max(absBits(v.z), absBits(v.w))));
        }
    }
    barrier();
    if (max(tops[QUERY], max(tops[KEY], tops[VALUE])) >= INF_BITS) {
        if (tid == 0u) {
            fail(max(tops[KEY], tops[VALUE]) >= INF_BITS ? storeOp : op, row);
        }
        return false;
    }
    if (tid < PARTS) {
        exponents[tid] = rowExponent(tops[tid]);
    }
    for (uint i = 0u; i < PER; i++) {
        item(i, part, w);
        if (part == PARTS) {
            break;
        }
        int e = rowExponent(tops[part]);
        float scale = pow2(-e);
        ivec4 hi, lo;
        for (uint c = 0u; c < 4u; c++) {
            ivec2 l = limbs2(scaledTo(inputs[i][c], scale));
            hi[c] = l.x;
            lo[c] = l.y;
        }
        limbs[2u * part * HDV + w / 4u][w % 4u] = packed(hi);
        limbs[(2u * part + 1u) * HDV + w / 4u][w % 4u] = packed(lo);
        if (stores(part)) {
            store(i, part, w, e, hi, lo);
        }
    }
    barrier();
    return true;
}

// own says that position j is the row's.
bool own(uint j) { return j == uint(pos); }

// withOwn puts the byte of the row's position into the values of channel, high or low limbs, of its block.
uvec4 withOwn(uvec4 values, uint limb, uint channel, uint g) {
    uint p = uint(pos) % BLOCK;
    if (p / 16u == g) {
        uint byte = limbs[(2u * VALUE + limb) * HDV + channel / 16u][channel / 4u % 4u] >> 8u * (channel % 4u);
        values[p / 4u % 4u] = bitfieldInsert(values[p / 4u % 4u], byte, int(8u * (p % 4u)), 8);
    }
    return values;
}
#else
layout(std430, set = 0, binding = 1) readonly buffer Queries { uvec4 queries[]; }; // heads.comp

void load() {}

bool prepare() {
    uint at = (row * heads + head) * (2u * HDV + 1u);
    for (uint i = gl_LocalInvocationID.x; i < 2u * HDV; i += THREADS) {
        limbs[i] = queries[at + i];
    }
    if (gl_LocalInvocationID.x == 0u) {
        exponents[0] = int(queries[at + 2u * HDV].x);
    }
    barrier();
    return true;
}
#endif

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
    if (slot == NO_SLOT) {
        return;
    }
    pos = positionOf(row);
    uint tid = gl_LocalInvocationID.x;
    kvHead = head / (heads / kvHeads);
    uint lo = lowest(pos);
    uint hi = uint(pos) + 1u;
    uint base = firstBlock(pos);
    uint span = blockCount(pos) * BLOCK;
    load();
    if (!prepare()) {
        return;
    }
    float queryScale = pow2(exponents[0]);

    uint top = 0u;
    for (uint i = tid; i < span; i += THREADS) {
        uint j = base * BLOCK + i;
        uint p = i % BLOCK;
        uint block = cacheBlock(slot, kvHead, j / BLOCK);
        int keyExponent = int(cache[block + 4u * LIMB_VECTORS + p / 4u][p % 4u]);
#ifdef HEADS
        keyExponent = own(j) ? exponents[KEY] : keyExponent;
#endif
        ivec3 sums = ivec3(0);
        STEPWISE for (uint c = 0u; c < HDV; c++) {
            uvec4 kh = cache[block + c * BLOCK + p];
            uvec4 kl = cache[block + LIMB_VECTORS + c * BLOCK + p];
#ifdef HEADS
            if (own(j)) {
                kh = limbs[2u * HDV + c];
                kl = limbs[3u * HDV + c];
            }
#endif
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
#ifdef HEADS
            for (uint c = 0u; c < 4u; c++) {
                e[c] = own(j + c) ? exponents[VALUE] : e[c];
            }
#endif
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
#ifdef HEADS
                if (base + b == uint(pos) / BLOCK) {
                    for (uint g = 0u; g < 4u; g++) {
                        high[g] = withOwn(high[g], 0u, channel, g);
                        low[g] = withOwn(low[g], 1u, channel, g);
                    }
                }
#endif
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
