#version 450
#extension GL_GOOGLE_include_directive : require

// Routing to experts, NUMERICS.md section 10: [rows][2 * K] indices of the K experts with the largest logits, ascending, then
// their weights. Workgroup (row), PER logits for each invocation.

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint PER = 1u;
layout(constant_id = 2) const uint K = 1u;
layout(constant_id = 3) const bool NORMALISE = false; // weights sum to 1 over the selected experts

#define TABLES 2
#define STATUS 3
#include "numerics.glsl"
#include "int64.glsl"
#include "reduce.glsl"
#include "reduce64.glsl"
#include "fixed.glsl"
#include "status.glsl"

layout(std430, set = 0, binding = 0) readonly buffer Logits { float logits[]; };
layout(std430, set = 0, binding = 1) writeonly buffer Route { float route[]; };

layout(push_constant) uniform Push {
    uint experts;
    uint op;
};

shared uint chosen[K];

uint index(uint i) { return i * gl_WorkGroupSize.x + gl_LocalInvocationID.x; }

void main() {
    uint row = gl_WorkGroupID.x;
    uint tid = gl_LocalInvocationID.x;
    float v[PER];
    uint left[PER]; // ordered, 0 once chosen
    uint top = 0u;
    for (uint i = 0u; i < PER; i++) {
        v[i] = index(i) < experts ? logits[row * experts + index(i)] : 0.0;
        left[i] = index(i) < experts ? ordered(v[i]) : 0u;
        top = max(top, absBits(v[i]));
    }
    if (workgroupMax(top) >= INF_BITS) {
        if (tid == 0u) {
            fail(op, row);
        }
        // The operations that follow index experts by what is here.
        for (uint i = tid; i < 2u * K; i += gl_WorkGroupSize.x) {
            route[row * 2u * K + i] = 0.0;
        }
        return;
    }
    float highest = 0.0;
    for (uint k = 0u; k < K; k++) {
        uint best = 0u;
        for (uint i = 0u; i < PER; i++) {
            best = max(best, left[i]);
        }
        best = workgroupMax(best);
        if (k == 0u) {
            highest = unordered(best);
        }
        uint backwards = 0u; // ~index, so that the lowest index wins
        for (uint i = 0u; i < PER; i++) {
            if (left[i] == best) {
                backwards = max(backwards, ~index(i));
            }
        }
        backwards = workgroupMax(backwards);
        for (uint i = 0u; i < PER; i++) {
            if (index(i) == ~backwards) {
                left[i] = 0u;
            }
        }
        if (tid == 0u) {
            chosen[k] = ~backwards;
        }
    }
    barrier();

    uvec2 sum = uvec2(0u);
    for (uint i = 0u; i < PER; i++) {
        if (index(i) < experts && (!NORMALISE || left[i] == 0u)) {
            precise float below = v[i] - highest;
            sum = add64(sum, fixed36(expOf(below)));
        }
    }
    float share = recipOf(fromFixed36(workgroupAdd64(sum)));
    for (uint i = 0u; i < PER; i++) {
        if (index(i) >= experts || left[i] != 0u) {
            continue;
        }
        uint place = 0u;
        for (uint k = 0u; k < K; k++) {
            place += chosen[k] < index(i) ? 1u : 0u;
        }
        precise float below = v[i] - highest;
        precise float w = expOf(below) * share;
        route[row * 2u * K + place] = float(index(i));
        route[row * 2u * K + K + place] = flushed(w);
    }
}
