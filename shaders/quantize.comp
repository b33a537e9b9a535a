#version 450
#extension GL_GOOGLE_include_directive : require

// A row of float32 to limbs, NUMERICS.md section 2 with rule 4. Workgroup (row); each invocation holds PER words of four
// consecutive values.

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint PER = 1u; // PER * workgroup size >= words

#define STATUS 2
#include "numerics.glsl"
#include "reduce.glsl"
#include "status.glsl"
#include "dot.glsl"

layout(std430, set = 0, binding = 0) readonly buffer In { float x[]; };
layout(std430, set = 0, binding = 1) writeonly buffer Limbs { uint limbs[]; };

layout(push_constant) uniform Push {
    uint K;
    uint words; // of a row of a plane
    uint rows;
    uint op;
};

vec4 v[PER];

#define KEEP_LIMBS
#include "limbs.glsl"
#include "quantize.glsl"

void main() {
    uint row = gl_WorkGroupID.x;
    for (uint i = 0u; i < PER; i++) {
        uint k = 4u * wordIndex(i);
        for (uint j = 0u; j < 4u; j++) {
            v[i][j] = k + j < K ? x[row * K + k + j] : 0.0;
        }
    }
    quantizeRow(row);
}
