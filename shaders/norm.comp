#version 450
#extension GL_GOOGLE_include_directive : require

// Norms, NUMERICS.md section 5: y = norm(x) * w + b over each of the groups of a row, after x = a + b where ADD says so, and
// quantised after (section 2) where QUANTIZE does. With FINISH the addend is the output of a matrix, which is kept too, from the
// sums of linear_matrix.comp (linear_parts.glsl). Workgroup (group, row) holds its K values in registers, so that input and
// output may be the same buffer. Only whole rows are added or quantised.

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint PER = 1u; // PER * workgroup size >= words of a group
layout(constant_id = 2) const bool LAYER_NORM = false;
layout(constant_id = 3) const bool NORM_BIAS = false;
layout(constant_id = 4) const bool ADD = false;
layout(constant_id = 5) const bool WRITE_SUM = false; // of ADD
layout(constant_id = 6) const bool QUANTIZE = false;
layout(constant_id = 7) const bool QUADS = false;
layout(constant_id = 8) const bool WRITE = true; // y
layout(constant_id = 9) const bool FINISH = false;
layout(constant_id = 10) const uint WEIGHT_LIMBS = 1u; // of FINISH, as in linear.glsl
layout(constant_id = 11) const bool HAS_BIAS = false;

#define TABLES 4
#define STATUS 5
#include "numerics.glsl"
#include "int64.glsl"
#include "reduce.glsl"
#include "reduce64.glsl"
#include "status.glsl"
#include "dot.glsl"

layout(std430, set = 0, binding = 0) readonly buffer In { float x[]; };
layout(std430, set = 0, binding = 0) readonly buffer InQuads { vec4 xQuads[]; };
layout(std430, set = 0, binding = 1) writeonly buffer Out { float y[]; };
layout(std430, set = 0, binding = 1) writeonly buffer OutQuads { vec4 yQuads[]; };
layout(std430, set = 0, binding = 2) readonly buffer Weight { float weight[]; };
layout(std430, set = 0, binding = 2) readonly buffer WeightQuads { vec4 weightQuads[]; };
layout(std430, set = 0, binding = 3) readonly buffer Bias { float bias[]; };
layout(std430, set = 0, binding = 3) readonly buffer BiasQuads { vec4 biasQuads[]; };
layout(std430, set = 0, binding = 6) readonly buffer Addend { float addend[]; };
layout(std430, set = 0, binding = 6) readonly buffer AddendQuads { vec4 addendQuads[]; };
layout(std430, set = 0, binding = 7) writeonly buffer Sum { float sum[]; };
layout(std430, set = 0, binding = 7) writeonly buffer SumQuads { vec4 sumQuads[]; };
layout(std430, set = 0, binding = 8) writeonly buffer Limbs { uint limbs[]; };

// Of FINISH.
layout(std430, set = 0, binding = 9) readonly buffer Sums { ivec4 partial[]; };
layout(std430, set = 0, binding = 10) readonly buffer Scales { float scales[]; };
layout(std430, set = 0, binding = 10) readonly buffer ScaleQuads { vec4 scaleQuads[]; };
layout(std430, set = 0, binding = 11) readonly buffer LinearBias { float linearBias[]; };
layout(std430, set = 0, binding = 11) readonly buffer LinearBiasQuads { vec4 linearBiasQuads[]; };
layout(std430, set = 0, binding = 12) readonly buffer Info { int info[]; }; // the limbs that the matrix is multiplied with
layout(std430, set = 0, binding = 13) writeonly buffer Linear { float linear[]; };
layout(std430, set = 0, binding = 13) writeonly buffer LinearQuads { vec4 linearQuads[]; };

layout(push_constant) uniform Push {
    uint K;
    uint words; // of a row of a plane of limbs
    uint rows;
    uint op; // of the quantising
    uint normOp;
    float eps;
    float invK;
    uint parts; // of the inputs of the matrix
    uint padded;
    uint KV;
};

vec4 v[PER];

#include "words.glsl"
#define KEEP_LIMBS
#include "limbs.glsl"
#include "quantize.glsl"
#include "norm.glsl"
#include "linear_input.glsl"
#include "linear_sums.glsl"
#define PARTIAL(i) partial[i]
#include "linear_parts.glsl"

WORD_READER(inputWord, x, xQuads)
WORD_READER(weightWord, weight, weightQuads)
WORD_READER(biasWord, bias, biasQuads)
WORD_READER(addendWord, addend, addendQuads)
WORD_READER(scaleWord, scales, scaleQuads)
WORD_READER(linearBiasWord, linearBias, linearBiasQuads)
WORD_WRITER(writeLinear, linear, linearQuads)
WORD_WRITER(writeOutput, y, yQuads)
WORD_WRITER(writeSum, sum, sumQuads)

void main() {
    uint row = gl_WorkGroupID.y;
    uint base = (row * gl_NumWorkGroups.x + gl_WorkGroupID.x) * K;
    vec4 other[PER];
    // Everything is loaded before anything is waited for.
    Parts loaded[PER];
    vec4 scale[PER], added[PER];
    [[unroll]] for (uint i = 0u; i < PER; i++) {
        v[i] = inputWord(base, i);
        if (ADD && FINISH) {
            LOAD_PARTS(loaded[i], partial, row, column(i, 0u), column(i, 0u) < K)
            scale[i] = scaleWord(0u, i);
            added[i] = HAS_BIAS ? linearBiasWord(0u, i) : vec4(0.0);
        } else if (ADD) {
            other[i] = addendWord(base, i);
        }
        normWeight[i] = weightWord(0u, i);
        if (NORM_BIAS) {
            normBias[i] = biasWord(0u, i);
        }
    }
    if (ADD && FINISH) {
        int e = exponentOfRow(row);
        bool wide = wideRow(row);
        [[unroll]] for (uint i = 0u; i < PER; i++) {
            vec4 t = joinedParts(loaded[i], row, column(i, 0u), wide && column(i, 0u) < K);
            [[unroll]] for (uint j = 0u; j < 4u; j++) { // 0 beyond K, where scales are
                other[i][j] = scaledSum(t[j], e, scale[i][j], HAS_BIAS, added[i][j]);
            }
            writeLinear(base, i, other[i]);
        }
    }
    if (ADD) {
        for (uint i = 0u; i < PER; i++) {
            for (uint j = 0u; j < 4u; j++) {
                precise float s = v[i][j] + other[i][j];
                v[i][j] = flushed(s);
            }
            if (WRITE_SUM) {
                writeSum(base, i, v[i]);
            }
        }
    }
    normalize(row);
    if (WRITE) {
        for (uint i = 0u; i < PER; i++) {
            writeOutput(base, i, v[i]);
        }
    }
    if (QUANTIZE) {
        quantizeRow(row);
    }
}
