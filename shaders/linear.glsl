// Linear, NUMERICS.md section 4: y[n] = sum over k of x[k] w[n][k] + bias[n]. What its shaders share.
//
// The weights of a part of the matrix, output rows first to first + count of N: [WEIGHT_LIMBS][padded][KV] vectors of 16, with the scales
// of all N beside. Rows from count to padded are zero.

layout(constant_id = 1) const uint WEIGHT_LIMBS = 1u; // 1: int8, 2: int8x2
layout(constant_id = 2) const bool HAS_BIAS = false;

#include "numerics.glsl"
#define PRODUCTS 6
#include "dot.glsl"

layout(std430, set = 0, binding = 0) readonly buffer Weights { uvec4 weights[]; };
layout(std430, set = 0, binding = 1) readonly buffer Scales { float scales[]; };
layout(std430, set = 0, binding = 2) readonly buffer Bias { float bias[]; };
layout(std430, set = 0, binding = 3) readonly buffer Limbs { uvec4 limbs[]; }; // limbs.glsl
layout(std430, set = 0, binding = 4) readonly buffer Info { int info[]; };     // the same buffer, for exponents and flags
layout(std430, set = 0, binding = 5) writeonly buffer Out { float y[]; };      // [rows][N]

layout(push_constant) uniform Push {
    uint KV;       // vectors of a row: K padded, in 16 values
    uint rows;     // of the batch
    uint row0;     // the first to compute
    uint N;
    uint first;
    uint count;
    uint padded;
#ifdef PARTS
    uint parts;    // of the inputs
#endif
#ifdef EXPERTS
    uint topK;
    uint experts;
    uint expert;
#endif
};

uint weightRow(uint limb, uint n) { return (limb * padded + n) * KV; }
uint limbRow(uint plane, uint row) { return (plane * rows + row) * KV; }

#include "linear_input.glsl"
#include "linear_sums.glsl"

// scaled is output n (counted from first) for a row of the input, from the joined sums of all limbs.
float scaled(uint row, uint n, float t) {
    uint column = first + n;
    return scaledSum(t, exponentOfRow(row), scales[column], HAS_BIAS, HAS_BIAS ? bias[column] : 0.0);
}

// combined is scaled of unit sums; u2 are those of the second weight limb.
float combined(uint row, uint n, ivec3 u, ivec3 u2) { return scaled(row, n, joinedAll(u, u2, wideRow(row))); }

void store(uint row, uint n, ivec3 u, ivec3 u2) { y[row * N + first + n] = combined(row, n, u, u2); }
