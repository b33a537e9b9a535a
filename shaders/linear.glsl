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
#ifdef EXPERTS
    uint topK;
    uint experts;
    uint expert;
#endif
};

uint weightRow(uint limb, uint n) { return (limb * padded + n) * KV; }
uint limbRow(uint plane, uint row) { return (plane * rows + row) * KV; }
int exponentOfRow(uint row) { return info[12u * rows * KV + 2u * row]; }
bool wideRow(uint row) { return info[12u * rows * KV + 2u * row + 1u] != 0; }

// joined is T of section 4 for one weight limb; u are the unit sums by limb of the row.
float joined(ivec3 u, bool wide) {
    precise float t = float(u.x) * 256.0 + float(u.y);
    precise float t3 = t * 256.0 + float(u.z);
    return wide ? t3 : t;
}

// scaled is output n (counted from first) for a row of the input, from the joined sums of all limbs.
float scaled(uint row, uint n, float t) {
    uint column = first + n;
    precise float v = (t * pow2(exponentOfRow(row))) * scales[column];
    if (HAS_BIAS) {
        v = v + bias[column];
    }
    return flushed(v);
}

// combined is scaled of unit sums; u2 are those of the second weight limb.
float combined(uint row, uint n, ivec3 u, ivec3 u2) {
    bool wide = wideRow(row);
    precise float t = joined(u, wide);
    if (WEIGHT_LIMBS == 2u) {
        t = t * 256.0 + joined(u2, wide);
    }
    return scaled(row, n, t);
}

void store(uint row, uint n, ivec3 u, ivec3 u2) { y[row * N + first + n] = combined(row, n, u, u2); }
