#version 450
//variant attend_row_dp4a DP4A
//variant attend_row_lut LUT
#extension GL_GOOGLE_include_directive : require

// Attention (attend.glsl) of a batch of one row over a context short enough for the shared memory, in one dispatch, with the heads
// before it: each workgroup makes limbs of the query, and of the key and value of the row's own position, for itself (heads.glsl).
//
// Workgroup (head, part): all parts of a head compute its weights, which is quicker than to wait for one that does, and then the
// output for some of the channels each. Keys are on their way before the query is there. What belongs to the row's own position
// is taken from shared memory, since the first head of a group stores it in the cache meanwhile: the others read words of which
// the bytes of the other positions do not change.

layout(local_size_x_id = 0) in;
layout(constant_id = 4) const bool CAP = false;
layout(constant_id = 5) const bool ALIBI = false;
layout(constant_id = 6) const uint SPAN = 64u; // positions from the first block to the end of the last, at most
layout(constant_id = 7) const uint THREADS = 64u; // workgroup size, a multiple of 64
layout(constant_id = 8) const uint ROPE = 0u;  // 0 none, 1 halves, 2 interleaved pairs
layout(constant_id = 9) const uint PAIRS = 1u; // rotary
layout(constant_id = 10) const uint CHANNELS = 16u; // of a part, a multiple of 16
layout(constant_id = 11) const uint AHEAD = 1u;     // units of keys that an invocation loads at a time
#define WEIGH_THREADS THREADS

#define HEADS 6
#define CACHE 1
#define DST 2
#define TABLES 3
#define STATUS 4
#define SLOPES 5
#define PRODUCTS 13
#include "numerics.glsl"
#include "dot.glsl"
#include "attend.glsl"
#include "int64.glsl"
#include "fixed.glsl"
#include "reduce.glsl"
#include "reduce64.glsl"
#include "status.glsl"
#include "chain.glsl"
#include "attend_weigh.glsl"
#include "attend_score.glsl"
#include "attend_output.glsl"
#define HEAD_INPUTS coherent
#include "heads.glsl"

layout(std430, set = 0, binding = CACHE) buffer Cache { uvec4 cache[]; };
layout(std430, set = 0, binding = CACHE) buffer CacheWords { uint cacheWords[]; };
layout(std430, set = 0, binding = DST) writeonly buffer Dst { float dst[]; };

const uint PARTS = 3u; // query, key and value

shared uvec4 limbs[2u * PARTS * HDV]; // high limbs, then low limbs
shared int exponents[PARTS];
shared uint tops[PARTS];
// H, M and L of each position; then its score in place of H, and for each block three limbs of weights [4], their count and exponent.
shared uvec4 work[3u * SPAN / 4u];
shared uint totals[3u * CHANNELS]; // in parts of 21 bits

uint row, head, kvHead, slot;
int pos;

const uint WORDS = 4u * HDV; // of a head
const uint PER = (PARTS * WORDS + THREADS - 1u) / THREADS;

vec4 inputs[PER];
uint stored[8u * PER]; // the words of the cache that hold values of other positions too: high and low limbs of four channels

// item is the word w of a part that an invocation has as item i; none for part PARTS.
void item(uint i, out uint part, out uint w) {
    part = min((i * THREADS + gl_LocalInvocationID.x) / WORDS, PARTS);
    w = (i * THREADS + gl_LocalInvocationID.x) % WORDS;
}

bool stores(uint part) { return part < PARTS && part != QUERY && head % (heads / kvHeads) == 0u && gl_WorkGroupID.y == 0u; }

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

// prepare makes the limbs; it reports what is not finite, and goes on (norm.glsl).
void prepare() {
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
    if (tid == 0u && max(tops[QUERY], max(tops[KEY], tops[VALUE])) >= INF_BITS) {
        fail(max(tops[KEY], tops[VALUE]) >= INF_BITS ? storeOp : op, row);
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
            ivec2 l = limbs2(scaledSmall(inputs[i][c], scale));
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

#define WEIGHTS work
#include "attend_sum.glsl"

uint base; // first block

// A unit is EACH vectors of the keys of a block; a group of 64 invocations takes one of every GROUPS.
const uint GROUPS = THREADS / BLOCK;
const uint EACH = HDV % 2u == 0u ? 2u : 1u;
const uint UNITS = HDV / EACH; // of a block
uvec4 keyHigh[AHEAD * EACH], keyLow[AHEAD * EACH];

void fetchKey(uint i, uint unit, uint units) {
    if (unit < units) {
        uint at = cacheBlock(slot, kvHead, base + unit / UNITS) + unit % UNITS * EACH * BLOCK + gl_LocalInvocationID.x % BLOCK;
        for (uint c = 0u; c < EACH; c++) {
            keyHigh[i * EACH + c] = cache[at + c * BLOCK];
            keyLow[i * EACH + c] = cache[at + c * BLOCK + LIMB_VECTORS];
        }
    }
}

uvec4 high[4], low[4];

// fetch loads the values of a channel of a block.
void fetch(uint block, uint channel) {
    uint at = cacheBlock(slot, kvHead, block) + 2u * LIMB_VECTORS + channel;
    for (uint g = 0u; g < 4u; g++) {
        high[g] = cache[at + g * HDP];
        low[g] = cache[at + LIMB_VECTORS + g * HDP];
    }
}

// attend computes the output for positions [lo, hi) of the blocks from base on, which have span.
void attend(uint lo, uint hi, uint span) {
    uint tid = gl_LocalInvocationID.x;
    uint units = span / BLOCK * UNITS;
    for (uint i = tid; i < 3u * SPAN / 4u; i += THREADS) {
        work[i] = uvec4(0u);
    }
    for (uint i = tid; i < 3u * CHANNELS; i += THREADS) {
        totals[i] = 0u;
    }
    uint group = tid / BLOCK;
    for (uint i = 0u; i < AHEAD; i++) {
        fetchKey(i, group + i * GROUPS, units);
    }
    const uint EXPS = (SPAN + THREADS - 1u) / THREADS;
    int keyExponents[EXPS];
    for (uint i = 0u; i < EXPS; i++) {
        uint at = i * THREADS + tid;
        keyExponents[i] = at < span ? int(cache[cacheBlock(slot, kvHead, base + at / BLOCK) + 4u * LIMB_VECTORS + at % BLOCK / 4u][at % 4u]) : 0;
    }
    const uint VEXPS = (SPAN / 4u + THREADS - 1u) / THREADS;
    ivec4 valueExponents[VEXPS];
    for (uint i = 0u; i < VEXPS; i++) {
        uint vector = i * THREADS + tid;
        valueExponents[i] = ivec4(0);
        if (4u * vector < span) {
            valueExponents[i] = ivec4(cache[cacheBlock(slot, kvHead, base + vector / 16u) + 4u * LIMB_VECTORS + BLOCK / 4u + vector % 16u]);
        }
    }
    await(awaited, workgroups);
    load();
    prepare();
    float queryScale = pow2(exponents[0]);

    uint p = tid % BLOCK;
    for (uint first = group; first < units; first += AHEAD * GROUPS) {
        for (uint i = 0u; i < AHEAD; i++) {
            uint unit = first + i * GROUPS;
            if (unit < units) {
                uint at = unit / UNITS * BLOCK + p;
                ivec3 sums = ivec3(0);
                for (uint e = 0u; e < EACH; e++) {
                    uint c = unit % UNITS * EACH + e;
                    uvec4 kh = keyHigh[i * EACH + e];
                    uvec4 kl = keyLow[i * EACH + e];
                    if (own(base * BLOCK + at)) {
                        kh = limbs[2u * HDV + c];
                        kl = limbs[3u * HDV + c];
                    }
                    uvec4 qh = limbs[c];
                    uvec4 ql = limbs[HDV + c];
                    sums.x = dot16(sums.x, qh, kh);
                    sums.y = dot16(dot16(sums.y, qh, kl), ql, kh);
                    sums.z = dot16(sums.z, ql, kl);
                }
                atomicAdd(work[at / 4u][at % 4u], uint(sums.x));
                atomicAdd(work[(SPAN + at) / 4u][at % 4u], uint(sums.y));
                atomicAdd(work[(2u * SPAN + at) / 4u][at % 4u], uint(sums.z));
            }
            fetchKey(i, unit + AHEAD * GROUPS, units);
        }
    }

    // Several invocations share the blocks of a channel. The first values are on their way while the weights are made.
    const uint SHARERS = THREADS / CHANNELS;
    uint channel = gl_WorkGroupID.y * CHANNELS + tid % CHANNELS;
    uint part = tid / CHANNELS;
    bool shares = part < SHARERS && part < span / BLOCK && channel < HDP;
    if (shares) {
        fetch(base + part, channel);
    }

    barrier();
    uint top = 0u;
    for (uint i = 0u; i < EXPS; i++) {
        uint at = i * THREADS + tid;
        uint j = base * BLOCK + at;
        if (at < span && j >= lo && j < hi) {
            ivec3 sums = ivec3(work[at / 4u][at % 4u], work[(SPAN + at) / 4u][at % 4u], work[(2u * SPAN + at) / 4u][at % 4u]);
            float s = scoreOf(sums, queryScale, pow2(own(j) ? exponents[KEY] : keyExponents[i]), row, head, pos, j);
            work[at / 4u][at % 4u] = floatBitsToUint(s);
            top = max(top, ordered(s));
        }
    }
    float m = unordered(workgroupMax(top));
    if (tid == 0u && absBits(m) >= INF_BITS) {
        fail(op, row);
    }

    uint x = 0u;
    uvec2 sum = uvec2(0u);
    for (uint i = 0u; i < VEXPS; i++) {
        uint vector = i * THREADS + tid;
        uint j = base * BLOCK + 4u * vector;
        uint lane = tid % 16u;
        bool seen = 4u * vector < span;
        vec4 s = vec4(0.0);
        ivec4 e = valueExponents[i];
        if (seen) {
            s = uintBitsToFloat(work[vector]);
            for (uint c = 0u; c < 4u; c++) {
                e[c] = own(j + c) ? exponents[VALUE] : e[c];
            }
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

    uvec2 total = uvec2(0u);
    if (shares) {
        for (uint b = part; b < span / BLOCK; b += SHARERS) {
            uvec4 info = work[16u * b + 12u];
            if (base + b == uint(pos) / BLOCK) {
                for (uint g = 0u; g < 4u; g++) {
                    high[g] = withOwn(high[g], 0u, channel, g);
                    low[g] = withOwn(low[g], 1u, channel, g);
                }
            }
            uvec2 values = blockSum(16u * b, info.x, high, low);
            if (b + SHARERS < span / BLOCK) {
                fetch(base + b + SHARERS, channel);
            }
            if (info.x != 0u) {
                total = add64(total, shift64(values, int(info.y) - X + 12));
            }
        }
        // By parts of 21 bits, whose sums over 1,024 invocations fit in 32.
        uint at = 3u * (tid % CHANNELS);
        atomicAdd(totals[at], total.x & 0x1fffffu);
        atomicAdd(totals[at + 1u], total.x >> 21 | (total.y & 0x3ffu) << 11);
        atomicAdd(totals[at + 2u], total.y >> 10);
    }
    barrier();
    if (tid < CHANNELS && channel < HD) {
        total = add64(add64(uvec2(totals[3u * tid], 0u), left64(uvec2(totals[3u * tid + 1u], 0u), 21u)), uvec2(0u, totals[3u * tid + 2u] << 10));
        dst[(row * heads + head) * HD + channel] = outputBy(total, pow2(X - 12), recipOf(fromFixed36(sum)));
    }
}

void compute() {
    row = first;
    head = gl_WorkGroupID.x;
    slot = slotOf(row);
    pos = positionOf(row);
    kvHead = head / (heads / kvHeads);
    base = firstBlock(pos);
    attend(lowest(pos), uint(pos) + 1u, blockCount(pos) * BLOCK);
}

void main() {
    compute();
    count(ownCounter);
}
