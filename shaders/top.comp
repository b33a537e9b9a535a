#version 450
#extension GL_GOOGLE_include_directive : require

// A round of OpTop: of each chunk of a row the K largest, largest first; of equal values the lower index comes first. The
// first round reads values, the others what the round before left, and the last, of a single chunk, writes
// [rows][2 * K] indices, then values. Workgroup (chunk, row).

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint CHUNK = 1024u; // a power of two
layout(constant_id = 2) const uint K = 1u;        // at most CHUNK / 2

#define STATUS 4
#include "numerics.glsl"
#include "reduce.glsl"
#include "status.glsl"
#include "chain.glsl"

layout(std430, set = 0, binding = 0) coherent buffer Values { float values[]; };
// A candidate is the value, as ordered gives it, and the complement of its index: the larger pair goes first. (0, 0) is none.
layout(std430, set = 0, binding = 1) coherent buffer Candidates { uvec2 candidates[]; };
layout(std430, set = 0, binding = 2) writeonly buffer Kept { uvec2 kept[]; };
layout(std430, set = 0, binding = 3) writeonly buffer Top { float top[]; };

layout(push_constant) uniform Push {
    uint width; // values or candidates of a row
    uint op;
    bool first;
    bool last;
    uint awaited; // chain.glsl
    uint workgroups;
    uint own;
};

shared uvec2 chunk[K == 1u ? 1u : CHUNK];

uvec2 candidate(uint at) {
    uint row = gl_WorkGroupID.y;
    if (at >= width) {
        return uvec2(0u);
    }
    if (!first) {
        return candidates[row * width + at];
    }
    float v = values[row * width + at];
    if (absBits(v) >= INF_BITS) {
        fail(op, row);
    }
    return uvec2(ordered(v), ~at);
}

bool above(uvec2 a, uvec2 b) { return a.x > b.x || a.x == b.x && a.y > b.y; }

void put(uint k, uvec2 c) {
    uint row = gl_WorkGroupID.y;
    if (last) {
        top[row * 2u * K + k] = float(~c.y);
        top[row * 2u * K + K + k] = unordered(c.x);
    } else {
        kept[(row * gl_NumWorkGroups.x + gl_WorkGroupID.x) * K + k] = c;
    }
}

// largest is K = 1: two reductions.
void largest(uint begin) {
    uvec2 best = uvec2(0u);
    for (uint i = gl_LocalInvocationID.x; i < CHUNK; i += gl_WorkGroupSize.x) {
        uvec2 c = candidate(begin + i);
        if (above(c, best)) {
            best = c;
        }
    }
    uint value = workgroupMax(best.x);
    uint index = workgroupMax(best.x == value ? best.y : 0u);
    if (gl_LocalInvocationID.x == 0u) {
        put(0u, uvec2(value, index));
    }
}

// sorted is a bitonic sort of the chunk, largest first.
void sorted(uint begin) {
    uint tid = gl_LocalInvocationID.x;
    for (uint i = tid; i < CHUNK; i += gl_WorkGroupSize.x) {
        chunk[i] = candidate(begin + i);
    }
    barrier();
    for (uint run = 2u; run <= CHUNK; run *= 2u) {
        for (uint apart = run / 2u; apart > 0u; apart /= 2u) {
            for (uint pair = tid; pair < CHUNK / 2u; pair += gl_WorkGroupSize.x) {
                uint i = 2u * pair - (pair & (apart - 1u));
                uvec2 a = chunk[i];
                uvec2 b = chunk[i + apart];
                if (above(b, a) == ((i & run) == 0u)) {
                    chunk[i] = b;
                    chunk[i + apart] = a;
                }
            }
            barrier();
        }
    }
    for (uint k = tid; k < K; k += gl_WorkGroupSize.x) {
        put(k, chunk[k]);
    }
}

void main() {
    uint begin = gl_WorkGroupID.x * CHUNK;
    await(awaited, workgroups);
    if (K == 1u) {
        largest(begin);
    } else {
        sorted(begin);
    }
    count(own);
}
