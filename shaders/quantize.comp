#version 450
#extension GL_GOOGLE_include_directive : require

// A row of float32 to limbs, NUMERICS.md section 2 with rule 4. Workgroup (row).

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint PER = 1u; // PER * workgroup size >= words
layout(constant_id = 2) const bool QUADS = false;

#define STATUS 2
#include "numerics.glsl"
#include "reduce.glsl"
#include "status.glsl"
#include "dot.glsl"

layout(std430, set = 0, binding = 0) readonly buffer In { float x[]; };
layout(std430, set = 0, binding = 0) readonly buffer InQuads { vec4 xQuads[]; };
layout(std430, set = 0, binding = 1) writeonly buffer Limbs { uint limbs[]; };

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

void main() {
    uint row = gl_WorkGroupID.x;
    for (uint i = 0u; i < PER; i++) {
        v[i] = inputWord(row * K, i);
    }
    quantizeRow(row);
}
