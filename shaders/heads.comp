#version 450
#extension GL_GOOGLE_include_directive : require
//variant heads
//variant heads_finish HEAD_VALUES

// Head rows to two limbs, NUMERICS.md sections 2 and 8: queries into a buffer, keys and values into the cache (heads.glsl).
// Workgroup (head, tile of rows), the heads being those of the queries, of the keys and of the values, one after the other; each
// of TILE rows has LANES invocations, a multiple of the subgroup size or a part of it, with PER words of four channels. With
// HEAD_VALUES the heads, which are kept too, are the outputs of three matrices, from the sums of linear_matrix.comp
// (linear_parts.glsl), and have a multiple of four channels.

#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require

layout(local_size_x_id = 0) in;
layout(constant_id = 4) const uint PER = 1u;
layout(constant_id = 5) const uint ROPE = 0u;  // 0 none, 1 halves, 2 interleaved pairs
layout(constant_id = 6) const uint PAIRS = 1u; // rotary
layout(constant_id = 7) const uint TILE = 1u;  // 1, or 4: then values of neighbouring positions are stored together
layout(constant_id = 8) const uint LANES = 32u;

#include "numerics.glsl"
#include "dot.glsl"
#include "kv.glsl"
#define ROWS 0
#include "rows.glsl"
#define STATUS 3
#include "status.glsl"

// heads are those of the queries, 0 for none, and stored those of the keys and values, 0 for none.
layout(push_constant) uniform Push {
    uint heads;
    uint stored;
    uint blocks;
    uint op;    // of keys and values
    uint queryOp;
    uint rows;
#ifdef HEAD_VALUES
    uint parts; // of the inputs of the matrices
    uint KV;
    uint queryPadded, storedPadded;
#endif
};

#define HEADS 4
#ifdef HEAD_VALUES
layout(constant_id = 9) const uint WEIGHT_LIMBS = 1u; // as in linear.glsl
layout(constant_id = 10) const bool HAS_BIAS = false;

layout(std430, set = 0, binding = HEADS) writeonly buffer Q { vec4 qOut[]; };
layout(std430, set = 0, binding = HEADS + 1) writeonly buffer K { vec4 kOut[]; };
layout(std430, set = 0, binding = HEADS + 2) writeonly buffer V { vec4 vOut[]; };
layout(std430, set = 0, binding = 11) readonly buffer QSums { ivec4 qSums[]; };
layout(std430, set = 0, binding = 12) readonly buffer KSums { ivec4 kSums[]; };
layout(std430, set = 0, binding = 13) readonly buffer VSums { ivec4 vSums[]; };
layout(std430, set = 0, binding = 14) readonly buffer QScales { vec4 qScales[]; };
layout(std430, set = 0, binding = 15) readonly buffer KScales { vec4 kScales[]; };
layout(std430, set = 0, binding = 16) readonly buffer VScales { vec4 vScales[]; };
layout(std430, set = 0, binding = 17) readonly buffer QBias { vec4 qBias[]; };
layout(std430, set = 0, binding = 18) readonly buffer KBias { vec4 kBias[]; };
layout(std430, set = 0, binding = 19) readonly buffer VBias { vec4 vBias[]; };
layout(std430, set = 0, binding = 20) readonly buffer Info { int info[]; }; // the limbs that the matrices are multiplied with

shared vec4 values[TILE * 4u * HDV]; // of the heads of the tile

float headInput(uint part, uint at) { return values[at / 4u][at % 4u]; }
vec4 headQuads(uint part, uint at) { return values[at]; }
#endif
#include "heads.glsl"

#ifdef HEAD_VALUES
uint part; // of the workgroup
uint padded;

ivec4 partialSum(uint i) { return part == QUERY ? qSums[i] : part == KEY ? kSums[i] : vSums[i]; }

#define PARTIAL(i) partialSum(i)
#include "linear_input.glsl"
#include "linear_sums.glsl"
#include "linear_parts.glsl"

// What is loaded for a word of the outputs before anything is waited for.
struct Word {
    Parts sums;
    vec4 scale, bias;
};

#define LOAD_WORD(loaded, from, scales, biases, row, n, real) \
    LOAD_PARTS(loaded.sums, from, row, 4u * (n), real) \
    loaded.scale = real ? scales[n] : vec4(0.0); \
    loaded.bias = HAS_BIAS && real ? biases[n] : vec4(0.0);

// finishWord keeps word n of the outputs of the matrix for a row, and gives it.
vec4 finishWord(Word loaded, uint row, uint n, int e, bool wide) {
    vec4 t = joinedParts(loaded.sums, row, 4u * n, wide);
    vec4 word;
    [[unroll]] for (uint j = 0u; j < 4u; j++) {
        word[j] = scaledSum(t[j], e, loaded.scale[j], HAS_BIAS, loaded.bias[j]);
    }
    uint at = row * (part == QUERY ? heads : stored) * (HD / 4u) + n;
    if (part == QUERY) {
        qOut[at] = word;
    } else if (part == KEY) {
        kOut[at] = word;
    } else {
        vOut[at] = word;
    }
    return word;
}
#endif

// Queries as limbs: [rows][heads] of high limbs [HDV], low limbs [HDV] and a vector whose x is the exponent.
layout(std430, set = 0, binding = 1) writeonly buffer Queries { uint queries[]; };
layout(std430, set = 0, binding = 2) buffer Cache { uint cache[]; };

// storeByte replaces a byte of a word of the cache, of which others may write the other bytes at the same time: what was read of
// them goes out with itself.
void storeByte(uint word, uint byte, int v, uint before) {
    uint mask = 0xffu << 8u * byte;
    atomicXor(cache[word], ((uint(v) << 8u * byte) ^ before) & mask);
}

shared uint tops[TILE];
shared uint quad[TILE == 4u ? 2u * 4u * 4u * HDV : 1u]; // [limbs][rows][words] of the values of a tile

// together says that the rows of the tile are four positions that share the words of the values.
bool together(uint row0) {
    if (TILE != 4u || row0 + TILE > rows || uint(positionOf(row0)) % 4u != 0u) {
        return false;
    }
    for (uint i = 1u; i < TILE; i++) {
        if (slotOf(row0 + i) != slotOf(row0) || positionOf(row0 + i) != positionOf(row0) + int(i)) {
            return false;
        }
    }
    return true;
}

void main() {
    uint row0 = gl_WorkGroupID.y * TILE;
    uint r = gl_LocalInvocationID.x / LANES;
    uint lane = gl_LocalInvocationID.x % LANES;
    uint row = row0 + r;
    uint head = gl_WorkGroupID.x;
    bool real = row < rows;
#ifndef HEAD_VALUES
    uint part;
#endif
    part = QUERY;
    if (head >= heads) {
        head -= heads;
        part = head < stored ? KEY : VALUE;
        head -= part == VALUE ? stored : 0u;
    }
#ifdef HEAD_VALUES
    Word loaded[PER];
    padded = part == QUERY ? queryPadded : storedPadded;
    [[unroll]] for (uint i = 0u; i < PER; i++) {
        uint w = i * LANES + lane;
        uint n = head * (HD / 4u) + w;
        bool inside = real && 4u * w < HD;
        if (part == QUERY) {
            LOAD_WORD(loaded[i], qSums, qScales, qBias, row, n, inside)
        } else if (part == KEY) {
            LOAD_WORD(loaded[i], kSums, kScales, kBias, row, n, inside)
        } else {
            LOAD_WORD(loaded[i], vSums, vScales, vBias, row, n, inside)
        }
    }
    int inputExponent = real ? exponentOfRow(row) : 0;
    bool wide = real && wideRow(row);
#endif
    uint slot = real ? slotOf(row) : 0u;
    int pos = real ? positionOf(row) : 0;
    if (lane == 0u) {
        tops[r] = 0u;
    }
    barrier();

    uint p = uint(pos) % BLOCK;
    uint block = 4u * (((slot * stored + head) * blocks + uint(pos) / BLOCK) * BLOCK_VECTORS); // in words
    bool byQuads = part == VALUE && together(row0);
    uvec4 before[PER * 2u]; // words of the cache, both limbs of four channels
    if (part == VALUE && real && !byQuads) {
        [[unroll]] for (uint i = 0u; i < PER; i++) {
            [[unroll]] for (uint c = 0u; c < 4u; c++) {
                uint at = valueWord(block, min(4u * (i * LANES + lane) + c, HDP - 1u), p);
                before[2u * i][c] = cache[at];
                before[2u * i + 1u][c] = cache[at + 4u * LIMB_VECTORS];
            }
        }
    }

    vec4 v[PER];
#ifdef HEAD_VALUES
    uint base = r * HDP;
    [[unroll]] for (uint i = 0u; i < PER; i++) {
        uint w = i * LANES + lane;
        if (real && 4u * w < HD) {
            values[base / 4u + w] = finishWord(loaded[i], row, head * (HD / 4u) + w, inputExponent, wide);
        }
    }
    barrier();
#else
    uint base = (row * (part == QUERY ? heads : stored) + head) * HD;
#endif
    uint top = 0u;
    for (uint i = 0u; i < PER; i++) {
        v[i] = real ? headWord(part, base, pos, i * LANES + lane) : vec4(0.0);
        top = max(top, max(max(absBits(v[i].x), absBits(v[i].y)), max(absBits(v[i].z), absBits(v[i].w))));
    }
    if (LANES % gl_SubgroupSize == 0u) {
        top = subgroupMax(top);
        if (subgroupElect()) {
            atomicMax(tops[r], top);
        }
    } else {
        atomicMax(tops[r], top);
    }
    barrier();
    top = tops[r];
    if (real && lane == 0u && top >= INF_BITS) {
        fail(part == QUERY ? queryOp : op, row);
    }
    int e = rowExponent(min(top, INF_BITS - 1u));
    float scale = pow2(-e);

    uint query = 4u * ((row * heads + head) * (2u * HDV + 1u));
    if (real && lane == 0u) {
        if (part == QUERY) {
            queries[query + 8u * HDV] = uint(e);
        } else {
            cache[exponentWord(block, part == VALUE, p)] = uint(e);
        }
    }
    [[unroll]] for (uint i = 0u; i < PER; i++) {
        uint w = i * LANES + lane;
        if (!real || w >= 4u * HDV) {
            continue;
        }
        ivec4 hi, lo;
        for (uint c = 0u; c < 4u; c++) {
            ivec2 limbs = limbs2(scaledTo(v[i][c], scale));
            hi[c] = limbs.x;
            lo[c] = limbs.y;
        }
        if (part == QUERY) {
            queries[query + w] = packed(hi);
            queries[query + 4u * HDV + w] = packed(lo);
        } else if (part == KEY) {
            uint at = keyWord(block, w, p);
            cache[at] = packed(hi);
            cache[at + 4u * LIMB_VECTORS] = packed(lo);
        } else if (byQuads) {
            quad[r * 4u * HDV + w] = packed(hi);
            quad[(4u + r) * 4u * HDV + w] = packed(lo);
        } else {
            for (uint c = 0u; c < 4u; c++) {
                uint at = valueWord(block, 4u * w + c, p);
                storeByte(at, p % 4u, hi[c], before[2u * i][c]);
                storeByte(at + 4u * LIMB_VECTORS, p % 4u, lo[c], before[2u * i + 1u][c]);
            }
        }
    }
    if (TILE != 4u || part != VALUE) {
        return;
    }
    barrier();
    for (uint i = 0u; byQuads && i < PER; i++) {
        uint w = i * LANES + lane;
        if (w >= 4u * HDV) {
            break;
        }
        // Channel 4 * w + r of the four positions.
        for (uint limb = 0u; limb < 2u; limb++) {
            uint word = 0u;
            for (uint j = 0u; j < 4u; j++) {
                word |= bitfieldExtract(quad[(limb * 4u + j) * 4u * HDV + w], int(8u * r), 8) << (8u * j);
            }
            cache[valueWord(block, 4u * w + r, p) + limb * 4u * LIMB_VECTORS] = word;
        }
    }
}
