#version 450
#extension GL_GOOGLE_include_directive : require

// The output of a mixture, NUMERICS.md section 10: y = sum of flush(w * expert(x)) in ascending order of the experts, which
// is that of the choices. Invocation (output, row).

layout(local_size_x = 64) in;

#include "numerics.glsl"

layout(std430, set = 0, binding = 0) readonly buffer Route { float route[]; }; // [rows][2 * topK]
layout(std430, set = 0, binding = 1) readonly buffer Down { float down[]; };   // [slots][width]
layout(std430, set = 0, binding = 2) writeonly buffer Dst { float dst[]; };    // [rows][width]

layout(push_constant) uniform Push {
    uint width;
    uint topK;
};

void main() {
    uint n = gl_GlobalInvocationID.x;
    uint row = gl_WorkGroupID.y;
    if (n >= width) {
        return;
    }
    float y = 0.0;
    for (uint i = 0u; i < topK; i++) {
        precise float part = route[(row * 2u + 1u) * topK + i] * down[(row * topK + i) * width + n];
        precise float sum = y + flushed(part);
        y = flushed(sum);
    }
    dst[row * width + n] = y;
}
