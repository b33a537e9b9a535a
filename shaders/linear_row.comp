#version 450
#extension GL_GOOGLE_include_directive : require
//variant linear_row_dp4a DP4A
//variant linear_row_lut LUT

// Linear for a batch of one row, with what comes before and after it: each workgroup normalises (NORM) and quantises the row
// for itself, into shared memory, which is quicker than to wait for another dispatch that does; with READY the limbs are there.
// Then each subgroup computes an output at a time, UNROLL vectors ahead; the first weights are on their way while the row is
// made. With GATED it computes act(gate) * up of two matrices of the same shape, with ADD it adds the output to a residual row.
//
// The first workgroup keeps the normalised row and the limbs, which audits and other operations may read. Workgroup (outputs).

#extension GL_EXT_control_flow_attributes : require

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint WEIGHT_LIMBS = 1u; // 1: int8, 2: int8x2
layout(constant_id = 2) const bool HAS_BIAS = false;
layout(constant_id = 3) const uint UNROLL = 1u;
layout(constant_id = 4) const uint PER = 1u; // words of the row of an invocation
layout(constant_id = 5) const uint KV = 4u;  // vectors of 16 inputs, K padded
layout(constant_id = 6) const bool NORM = false;
layout(constant_id = 7) const bool LAYER_NORM = false;
layout(constant_id = 8) const bool NORM_BIAS = false;
layout(constant_id = 9) const bool GATED = false;
layout(constant_id = 10) const uint KIND = 0u; // of activation
layout(constant_id = 11) const bool ADD = false;
layout(constant_id = 12) const bool KEEP = false; // the normalised row and the limbs
layout(constant_id = 13) const bool READY = false; // the limbs are there

#define TABLES 7
#define STATUS 8
#define PRODUCTS 15
#include "numerics.glsl"
#include "int64.glsl"
#include "reduce.glsl"
#include "reduce64.glsl"
#include "status.glsl"
#include "dot.glsl"
#include "activation.glsl"
#include "linear_sums.glsl"

layout(std430, set = 0, binding = 0) readonly buffer Weights { uvec4 weights[]; }; // linear.glsl; up, where GATED
layout(std430, set = 0, binding = 1) readonly buffer Scales { float scales[]; };
layout(std430, set = 0, binding = 2) readonly buffer Bias { float linearBias[]; };
layout(std430, set = 0, binding = 3) readonly buffer In { float x[]; };
layout(std430, set = 0, binding = 4) readonly buffer NormWeight { float weight[]; };
layout(std430, set = 0, binding = 5) readonly buffer NormBias { float bias[]; };
layout(std430, set = 0, binding = 6) writeonly buffer Out { float y[]; };
layout(std430, set = 0, binding = 9) readonly buffer GateWeights { uvec4 gateWeights[]; };
layout(std430, set = 0, binding = 10) readonly buffer GateScales { float gateScales[]; };
layout(std430, set = 0, binding = 11) readonly buffer GateBias { float gateBias[]; };
layout(std430, set = 0, binding = 12) buffer Residual { float residual[]; };
layout(std430, set = 0, binding = 13) writeonly buffer Normed { float normed[]; };
layout(std430, set = 0, binding = 14) buffer Limbs { uint limbs[]; }; // limbs.glsl

layout(push_constant) uniform Push {
    uint K;
    uint first; // output rows of the part: first to first + count
    uint count;
    uint padded;
    uint op; // of the quantising
    uint normOp;
    float eps;
    float invK;
};

const uint rows = 1u;
const uint words = 4u * KV;
const uint SETS = GATED ? 2u : 1u;

shared uvec4 quantised[3u * KV]; // by plane
shared int rowExponentShared;
shared uint rowWide;

vec4 v[PER];

#include "limbs.glsl"

bool keeps() { return KEEP && gl_WorkGroupID.x == 0u; }

void keep(uint row, uint plane, uint word, uint value) {
    quantised[plane * KV + word / 4u][word % 4u] = value;
    if (keeps()) {
        limbs[limbPlane(plane, rows, words) + word] = value;
    }
}

void keepInfo(uint row, int exponent, bool wide) {
    rowExponentShared = exponent;
    rowWide = wide ? 1u : 0u;
    if (keeps()) {
        limbs[limbInfo(0u, rows, words)] = uint(exponent);
        limbs[limbInfo(0u, rows, words) + 1u] = rowWide;
    }
}

#include "quantize.glsl"
#include "norm.glsl"

// prepare makes the limbs of the row.
bool prepare() {
    if (READY) {
        bool wide = limbs[limbInfo(0u, rows, words) + 1u] != 0u;
        for (uint i = gl_LocalInvocationID.x; i < (wide ? 3u : 2u) * KV; i += gl_WorkGroupSize.x) {
            quantised[i] = uvec4(limbs[4u * i], limbs[4u * i + 1u], limbs[4u * i + 2u], limbs[4u * i + 3u]);
        }
        rowExponentShared = int(limbs[limbInfo(0u, rows, words)]);
        rowWide = wide ? 1u : 0u;
        barrier();
        return true;
    }
    for (uint i = 0u; i < PER; i++) {
        for (uint j = 0u; j < 4u; j++) {
            uint k = column(i, j);
            v[i][j] = k < K ? x[k] : 0.0;
        }
    }
    if (NORM) {
        if (!normalize(0u)) {
            return false;
        }
        for (uint i = 0u; i < PER; i++) {
            for (uint j = 0u; j < 4u; j++) {
                if (keeps() && column(i, j) < K) {
                    normed[column(i, j)] = v[i][j];
                }
            }
        }
    }
    if (!quantizeRow(0u)) {
        return false;
    }
    barrier();
    return true;
}

const uint RESULTS = SETS * WEIGHT_LIMBS;
const uint LOADS = UNROLL * RESULTS;
uvec4 w[LOADS];

// fetch loads the weights of output n at vectors k, k + subgroup size, ...: those beyond the part or the row are zero.
// w[(u * SETS + set) * WEIGHT_LIMBS + limb]
void fetch(uint n, uint k) {
    [[unroll]] for (uint i = 0u; i < LOADS; i++) {
        uint limb = i % WEIGHT_LIMBS;
        uint set = i / WEIGHT_LIMBS % SETS;
        uint at = k + i / RESULTS * gl_SubgroupSize;
        uint vector = (limb * padded + n) * KV + at;
        w[i] = uvec4(0u);
        if (at < KV && n < count) {
            w[i] = set == 0u ? weights[vector] : gateWeights[vector];
        }
    }
}

ivec3 sums[RESULTS];

// finished is output n of a set from its sums.
float finished(uint n, uint set, ivec3 u, ivec3 u2) {
    float t = joinedAll(u, u2, rowWide != 0u);
    uint column = first + n;
    if (set == 0u) {
        return scaledSum(t, rowExponentShared, scales[column], HAS_BIAS, HAS_BIAS ? linearBias[column] : 0.0);
    }
    return scaledSum(t, rowExponentShared, gateScales[column], HAS_BIAS, HAS_BIAS ? gateBias[column] : 0.0);
}

void finish(uint n, ivec3 up, ivec3 up2, ivec3 gate, ivec3 gate2) {
    float value = finished(n, 0u, up, up2);
    if (GATED) {
        precise float gated = activation(KIND, finished(n, 1u, gate, gate2)) * value;
        value = flushed(gated);
    }
    y[first + n] = value;
    if (ADD) {
        precise float sum = residual[first + n] + value;
        residual[first + n] = flushed(sum);
    }
}

void main() {
    uint n = gl_WorkGroupID.x * gl_NumSubgroups + gl_SubgroupID;
    uint stride = gl_NumWorkGroups.x * gl_NumSubgroups;
    uint lane = gl_SubgroupInvocationID;
    uint step = UNROLL * gl_SubgroupSize;
    fetch(n, lane);
    if (!prepare()) {
        return;
    }
    bool wide = rowWide != 0u;
    for (; n < count; n += stride) {
        [[unroll]] for (uint i = 0u; i < RESULTS; i++) {
            sums[i] = ivec3(0);
        }
        for (uint k = 0u; k < KV; k += step) {
            [[unroll]] for (uint u = 0u; u < UNROLL; u++) {
                uint at = min(k + lane + u * gl_SubgroupSize, KV - 1u); // beyond, the weights are zero
                uvec4 x0 = quantised[at];
                uvec4 x1 = quantised[KV + at];
                [[unroll]] for (uint i = 0u; i < RESULTS; i++) {
                    sums[i].x = dot16(sums[i].x, w[u * RESULTS + i], x0);
                    sums[i].y = dot16(sums[i].y, w[u * RESULTS + i], x1);
                }
                if (wide) {
                    uvec4 x2 = quantised[2u * KV + at];
                    [[unroll]] for (uint i = 0u; i < RESULTS; i++) {
                        sums[i].z = dot16(sums[i].z, w[u * RESULTS + i], x2);
                    }
                }
            }
            bool last = k + step >= KV;
            fetch(last ? n + stride : n, last ? lane : k + step + lane);
        }
        [[unroll]] for (uint i = 0u; i < RESULTS; i++) {
            sums[i] = ivec3(subgroupAdd(sums[i].x), subgroupAdd(sums[i].y), wide ? subgroupAdd(sums[i].z) : 0);
        }
        if (lane == 0u) {
            uint gate = (SETS - 1u) * WEIGHT_LIMBS;
            finish(n, sums[0], sums[WEIGHT_LIMBS - 1u], sums[gate], sums[gate + WEIGHT_LIMBS - 1u]);
        }
    }
}
