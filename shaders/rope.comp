#version 450
#extension GL_GOOGLE_include_directive : require

// Rotary positions in place, NUMERICS.md section 7. Invocation (pair of any head, row).

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const bool INTERLEAVED = false;

#define ROWS 3
#include "numerics.glsl"
#include "rows.glsl"

layout(std430, set = 0, binding = 0) buffer X { float x[]; };
layout(std430, set = 0, binding = 1) readonly buffer Cos { float cosine[]; };
layout(std430, set = 0, binding = 2) readonly buffer Sin { float sine[]; };

layout(push_constant) uniform Push {
    uint heads;
    uint headDim;
    uint pairs; // pairs of a head
};

void main() {
    uint row = gl_WorkGroupID.y;
    uint i = gl_GlobalInvocationID.x;
    if (i >= heads * pairs) {
        return;
    }
    uint pair = i % pairs;
    uint at = (row * heads + i / pairs) * headDim + (INTERLEAVED ? 2u * pair : pair);
    uint other = at + (INTERLEAVED ? 1u : pairs);
    uint t = uint(positionOf(row)) * pairs + pair;
    float x0 = x[at];
    float x1 = x[other];
    precise float y0 = x0 * cosine[t] - x1 * sine[t];
    precise float y1 = x1 * cosine[t] + x0 * sine[t];
    x[at] = flushed(y0);
    x[other] = flushed(y1);
}
