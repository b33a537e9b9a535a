#version 450
#extension GL_GOOGLE_include_directive : require

// Head rows to two limbs, NUMERICS.md sections 2 and 8: queries into a buffer, keys and values into the cache (heads.glsl).
// Workgroup (head, row), the heads being those of the queries, of the keys and of the values, one after the other; each
// invocation has PER words of four channels.

layout(local_size_x_id = 0) in;
layout(constant_id = 4) const uint PER = 1u;
layout(constant_id = 5) const uint ROPE = 0u;  // 0 none, 1 halves, 2 interleaved pairs
layout(constant_id = 6) const uint PAIRS = 1u; // rotary

#include "numerics.glsl"
#include "dot.glsl"
#include "kv.glsl"
#define ROWS 0
#include "rows.glsl"
#include "reduce.glsl"
#define STATUS 3
#include "status.glsl"
#define HEADS 4
#include "heads.glsl"

// heads are those of the queries, 0 for none, and stored those of the keys and values, 0 for none.
layout(push_constant) uniform Push {
    uint heads;
    uint stored;
    uint blocks;
    uint op;    // of keys and values
    uint queryOp;
};

// Queries as limbs: [rows][heads] of high limbs [HDV], low limbs [HDV] and a vector whose x is the exponent.
layout(std430, set = 0, binding = 1) writeonly buffer Queries { uint queries[]; };
layout(std430, set = 0, binding = 2) buffer Cache { uint cache[]; };

// storeByte replaces a byte of a word of the cache, whose others may be written at the same time.
void storeByte(uint word, uint byte, int v) {
    uint shift = 8u * byte;
    atomicAnd(cache[word], ~(0xffu << shift));
    atomicOr(cache[word], (uint(v) & 0xffu) << shift);
}

void main() {
    uint row = gl_WorkGroupID.y;
    uint head = gl_WorkGroupID.x;
    uint part = QUERY;
    if (head >= heads) {
        head -= heads;
        part = head < stored ? KEY : VALUE;
        head -= part == VALUE ? stored : 0u;
    }
    uint slot = slotOf(row);
    if (slot == NO_SLOT) {
        return;
    }
    int pos = positionOf(row);

    vec4 v[PER];
    uint base = (row * (part == QUERY ? heads : stored) + head) * HD;
    uint top = 0u;
    for (uint i = 0u; i < PER; i++) {
        v[i] = headWord(part, base, pos, i * gl_WorkGroupSize.x + gl_LocalInvocationID.x);
        top = max(top, max(max(absBits(v[i].x), absBits(v[i].y)), max(absBits(v[i].z), absBits(v[i].w))));
    }
    top = workgroupMax(top);
    if (top >= INF_BITS) {
        if (gl_LocalInvocationID.x == 0u) {
            fail(part == QUERY ? queryOp : op, row);
        }
        return;
    }
    int e = rowExponent(top);
    float scale = pow2(-e);

    uint p = uint(pos) % BLOCK;
    uint block = 4u * (((slot * stored + head) * blocks + uint(pos) / BLOCK) * BLOCK_VECTORS); // in words
    uint query = 4u * ((row * heads + head) * (2u * HDV + 1u));
    if (gl_LocalInvocationID.x == 0u) {
        if (part == QUERY) {
            queries[query + 8u * HDV] = uint(e);
        } else {
            cache[exponentWord(block, part == VALUE, p)] = uint(e);
        }
    }
    for (uint i = 0u; i < PER; i++) {
        uint w = i * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
        if (w >= 4u * HDV) {
            break;
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
        } else {
            for (uint c = 0u; c < 4u; c++) {
                uint at = valueWord(block, 4u * w + c, p);
                storeByte(at, p % 4u, hi[c]);
                storeByte(at + 4u * LIMB_VECTORS, p % 4u, lo[c]);
            }
        }
    }
}
