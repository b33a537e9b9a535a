#version 450
#extension GL_GOOGLE_include_directive : require

// A row of float32 to limbs, NUMERICS.md section 2 with rule 4, after the activation of section 6 where ACT says so, whose output
// may be an input. Workgroup (row).

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint PER = 1u; // PER * workgroup size >= words
layout(constant_id = 2) const bool QUADS = false;
layout(constant_id = 3) const bool ACT = false;
layout(constant_id = 4) const uint ACT_KIND = 0u;
layout(constant_id = 5) const bool GATED = false; // times b
layout(constant_id = 6) const bool WRITE = false; // y
layout(constant_id = 7) const bool AHEAD = false; // all inputs are loaded first, else word by word

#define STATUS 2
#define TABLES 3
#include "numerics.glsl"
#include "activation.glsl"
#include "reduce.glsl"
#include "status.glsl"
#include "dot.glsl"

layout(std430, set = 0, binding = 0) readonly buffer In { float x[]; };
layout(std430, set = 0, binding = 0) readonly buffer InQuads { vec4 xQuads[]; };
layout(std430, set = 0, binding = 1) writeonly buffer Limbs { uint limbs[]; };
layout(std430, set = 0, binding = 4) readonly buffer B { float b[]; };
layout(std430, set = 0, binding = 4) readonly buffer BQuads { vec4 bQuads[]; };
layout(std430, set = 0, binding = 5) writeonly buffer Y { float y[]; };
layout(std430, set = 0, binding = 5) writeonly buffer YQuads { vec4 yQuads[]; };

layout(push_constant) uniform Push {
    uint K;
    uint words; // of a row of a plane
    uint rows;
    uint op;
};

vec4 v[PER];

#include "words.glsl"
#define KEEP_LIMBS
#include "limbs.glsl"
#include "quantize.glsl"

WORD_READER(inputWord, x, xQuads)
WORD_READER(factorWord, b, bQuads)
WORD_WRITER(writeOutput, y, yQuads)

// load reads word i, and what its activation is multiplied with.
void load(uint row, uint i, out vec4 factor) {
    v[i] = inputWord(row * K, i);
    factor = GATED ? factorWord(row * K, i) : vec4(0.0);
}

void main() {
    uint row = gl_WorkGroupID.x;
    vec4 factors[PER];
    if (AHEAD) {
        [[unroll]] for (uint i = 0u; i < PER; i++) {
            load(row, i, factors[i]);
        }
    }
    for (uint i = 0u; i < PER; i++) {
        if (!AHEAD) {
            load(row, i, factors[i]);
        }
        if (ACT) {
            for (uint j = 0u; j < 4u; j++) { // 0 beyond K, where all are
                precise float a = activation(ACT_KIND, v[i][j]);
                if (GATED) {
                    a = a * factors[i][j];
                }
                v[i][j] = flushed(a);
            }
            if (WRITE) {
                writeOutput(row * K, i, v[i]);
            }
        }
    }
    quantizeRow(row);
}
