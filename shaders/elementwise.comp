#version 450
#extension GL_GOOGLE_include_directive : require

// Element-wise operations of NUMERICS.md sections 6 and 9 over [rows][width] values. The output may be an input.

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint KIND = 0u;
layout(constant_id = 2) const bool GATED = false; // activations: times b

// After those of activation.glsl.
const uint ADD = 4u;     // a + b
const uint SCALE = 5u;   // a * factor
const uint SOFTCAP = 6u; // softcap(a, factor)

#define TABLES 3
#define STATUS 4
#include "numerics.glsl"
#include "activation.glsl"
#include "status.glsl"

layout(std430, set = 0, binding = 0) readonly buffer A { float a[]; };
layout(std430, set = 0, binding = 1) readonly buffer B { float b[]; };
layout(std430, set = 0, binding = 2) writeonly buffer Dst { float dst[]; };

layout(push_constant) uniform Push {
    uint count; // values, at most 2^31
    uint width; // of a row
    uint op;
    float factor;
    float inverse; // softcap: 1 / factor
};

void main() {
    uint stride = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < count; i += stride) {
        float x = a[i];
        precise float y;
        if (KIND == ADD) {
            y = x + b[i];
        } else if (KIND == SCALE) {
            y = x * factor;
        } else if (KIND == SOFTCAP) {
            if (absBits(x) >= INF_BITS) {
                fail(op, i / width);
                continue;
            }
            y = softcapOf(x, factor, inverse);
        } else {
            y = activation(KIND, x);
            if (GATED) {
                y = y * b[i];
            }
        }
        dst[i] = flushed(y);
    }
}
