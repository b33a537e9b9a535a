#version 450
#extension GL_GOOGLE_include_directive : require

// Head rows to two limbs, NUMERICS.md sections 2 and 8: queries into a buffer, keys and values into the cache, with rotary
// positions (section 7) for queries and keys first where ROPE says so. Workgroup (head, row), the heads being those of the
// queries, of the keys and of the values, one after the other; each invocation has PER words of four channels.

layout(local_size_x_id = 0) in;
layout(constant_id = 4) const uint PER = 1u;
layout(constant_id = 5) const uint ROPE = 0u; // 0 none, 1 halves, 2 interleaved pairs

#include "numerics.glsl"
#include "dot.glsl"
#include "kv.glsl"
#define ROWS 0
#include "rows.glsl"
#include "reduce.glsl"
#define STATUS 9
#include "status.glsl"

// heads are those of the queries, 0 for none, and stored those of the keys and values, 0 for none.
layout(push_constant) uniform Push {
    uint heads;
    uint stored;
    uint blocks;
    uint pairs; // rotary
    uint op;    // of keys and values
    uint queryOp;
};

// Queries as limbs: [rows][heads] of high limbs [HDV], low limbs [HDV] and a vector whose x is the exponent.
layout(std430, set = 0, binding = 1) writeonly buffer Queries { uint queries[]; };
layout(std430, set = 0, binding = 2) buffer Cache { uint cache[]; };
layout(std430, set = 0, binding = 3) readonly buffer Q { float qIn[]; };
layout(std430, set = 0, binding = 4) readonly buffer K { float kIn[]; };
layout(std430, set = 0, binding = 5) readonly buffer V { float vIn[]; };
layout(std430, set = 0, binding = 6) readonly buffer QueryCos { float queryCos[]; };
layout(std430, set = 0, binding = 7) readonly buffer QuerySin { float querySin[]; };
layout(std430, set = 0, binding = 8) readonly buffer KeyCos { float keyCos[]; };
layout(std430, set = 0, binding = 10) readonly buffer KeySin { float keySin[]; };

const uint QUERY = 0u;
const uint KEY = 1u;
const uint VALUE = 2u;

uint part, row, head;
int pos;

float load(uint d) {
    if (part == QUERY) {
        return qIn[(row * heads + head) * HD + d];
    }
    uint at = (row * stored + head) * HD + d;
    return part == KEY ? kIn[at] : vIn[at];
}

// value is channel d after rotation.
float value(uint d) {
    if (d >= HD) {
        return 0.0;
    }
    float x = load(d);
    if (ROPE == 0u || part == VALUE || d >= 2u * pairs) {
        return x;
    }
    uint pair = ROPE == 2u ? d / 2u : d % pairs;
    bool second = ROPE == 2u ? (d & 1u) == 1u : d >= pairs;
    uint step = ROPE == 2u ? 1u : pairs;
    float other = load(second ? d - step : d + step);
    uint t = uint(pos) * pairs + pair;
    float c = part == QUERY ? queryCos[t] : keyCos[t];
    float s = part == QUERY ? querySin[t] : keySin[t];
    precise float y0 = x * c - other * s;
    precise float y1 = x * c + other * s;
    return flushed(second ? y1 : y0);
}

// storeByte replaces a byte of a word of the cache, whose others may be written at the same time.
void storeByte(uint word, uint byte, int v) {
    uint shift = 8u * byte;
    atomicAnd(cache[word], ~(0xffu << shift));
    atomicOr(cache[word], (uint(v) & 0xffu) << shift);
}

void main() {
    row = gl_WorkGroupID.y;
    head = gl_WorkGroupID.x;
    part = QUERY;
    if (head >= heads) {
        head -= heads;
        part = head < stored ? KEY : VALUE;
        head -= part == VALUE ? stored : 0u;
    }
    uint slot = slotOf(row);
    if (slot == NO_SLOT) {
        return;
    }
    pos = positionOf(row);

    float v[PER * 4u];
    uint top = 0u;
    for (uint i = 0u; i < PER * 4u; i++) {
        v[i] = value(4u * (i / 4u * gl_WorkGroupSize.x + gl_LocalInvocationID.x) + i % 4u);
        top = max(top, absBits(v[i]));
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
            cache[block + 16u * LIMB_VECTORS + (part == VALUE ? BLOCK : 0u) + p] = uint(e);
        }
    }
    for (uint i = 0u; i < PER; i++) {
        uint w = i * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
        if (w >= 4u * HDV) {
            break;
        }
        ivec4 hi, lo;
        for (uint c = 0u; c < 4u; c++) {
            ivec2 limbs = limbs2(scaledTo(v[4u * i + c], scale));
            hi[c] = limbs.x;
            lo[c] = limbs.y;
        }
        if (part == QUERY) {
            queries[query + w] = packed(hi);
            queries[query + 4u * HDV + w] = packed(lo);
        } else if (part == KEY) {
            uint at = block + (w / 4u * BLOCK + p) * 4u + w % 4u;
            cache[at] = packed(hi);
            cache[at + 4u * LIMB_VECTORS] = packed(lo);
        } else {
            for (uint c = 0u; c < 4u; c++) {
                uint at = block + 8u * LIMB_VECTORS + (p / 16u * HDP + 4u * w + c) * 4u + p % 16u / 4u;
                storeByte(at, p % 4u, hi[c]);
                storeByte(at + 4u * LIMB_VECTORS, p % 4u, lo[c]);
            }
        }
    }
}
