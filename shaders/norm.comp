#version 450
#extension GL_GOOGLE_include_directive : require

// Norms, NUMERICS.md section 5: y = norm(x) * w + b over each of the groups of a row. Workgroup (group, row) holds its
// K values in registers, PER for each invocation, so that x and y may be the same buffer.

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint PER = 1u; // values for each invocation: PER * workgroup size >= K
layout(constant_id = 2) const bool LAYER_NORM = false;
layout(constant_id = 3) const bool HAS_BIAS = false;

#define TABLES 4
#define STATUS 5
#include "numerics.glsl"
#include "int64.glsl"
#include "reduce.glsl"
#include "reduce64.glsl"
#include "status.glsl"

layout(std430, set = 0, binding = 0) readonly buffer In { float x[]; };
layout(std430, set = 0, binding = 1) writeonly buffer Out { float y[]; };
layout(std430, set = 0, binding = 2) readonly buffer Weight { float weight[]; };
layout(std430, set = 0, binding = 3) readonly buffer Bias { float bias[]; };

layout(push_constant) uniform Push {
    uint K;
    uint op;
    float eps;
    float invK;
};

uint index(uint i) { return i * gl_WorkGroupSize.x + gl_LocalInvocationID.x; }

float v[PER];

uint largest() {
    uint top = 0u;
    for (uint i = 0u; i < PER; i++) {
        top = max(top, absBits(v[i])); // 0 beyond K
    }
    return workgroupMax(top);
}

int normExponent(uint top) { return top == 0u ? 0 : max(exponentOf(top), -60); }

void main() {
    uint row = gl_WorkGroupID.y;
    uint base = (row * gl_NumWorkGroups.x + gl_WorkGroupID.x) * K;
    for (uint i = 0u; i < PER; i++) {
        v[i] = index(i) < K ? x[base + index(i)] : 0.0;
    }
    uint top = largest();
    bool finite = top < INF_BITS;

    if (LAYER_NORM) {
        int e = normExponent(top);
        float scale = pow2(20 - e);
        int sum = 0; // |g| <= 2^21, so up to 1,023 of them fit
        for (uint i = 0u; i < PER; i++) {
            sum += scaledTo(v[i], scale);
        }
        precise float mu = (toFloat(workgroupAdd64(widened(sum))) * pow2(e - 20)) * invK;
        for (uint i = 0u; i < PER; i++) {
            precise float d = v[i] - mu;
            v[i] = index(i) < K ? flushed(d) : 0.0;
        }
        top = largest();
        finite = finite && top < INF_BITS;
    }

    int e = normExponent(top);
    float scale = pow2(20 - e);
    uvec2 squares = uvec2(0u);
    for (uint i = 0u; i < PER; i++) {
        squares = add64(squares, square64(scaledTo(v[i], scale)));
    }
    float p = pow2(e - 20);
    precise float ms = ((toFloat(workgroupAdd64(squares)) * p) * p) * invK;
    precise float d = ms + eps;
    if (!finite || floatBitsToUint(d) >= INF_BITS) {
        if (gl_LocalInvocationID.x == 0u) {
            fail(op, row);
        }
        return;
    }
    float r = rsqrtOf(d);
    for (uint i = 0u; i < PER; i++) {
        if (index(i) < K) {
            precise float n = v[i] * r;
            precise float n2 = flushed(n) * weight[index(i)];
            if (HAS_BIAS) {
                n2 = n2 + bias[index(i)];
            }
            y[base + index(i)] = flushed(n2);
        }
    }
}
