#version 450
#extension GL_GOOGLE_include_directive : require

// The output of attention from the totals of the parts of the context (attend.glsl). Workgroup (64 channels, head, row).

layout(local_size_x = 64) in;

#define TABLES 8
#include "numerics.glsl"
#include "attend.glsl"
#include "int64.glsl"
#include "fixed.glsl"

layout(std430, set = 0, binding = 6) readonly buffer Totals { uvec2 totals[]; };
layout(std430, set = 0, binding = 7) writeonly buffer Dst { float dst[]; };

#include "attend_output.glsl"
#include "attend_partials.glsl"

void main() {
    uint row = first + gl_WorkGroupID.z;
    uint head = gl_WorkGroupID.y;
    uint channel = gl_GlobalInvocationID.x;
    if (channel >= HD) {
        return;
    }
    uint n = rowHead(row, head);
    uvec2 total = uvec2(0u);
    for (uint i = 0u; i < splits; i++) {
        total = add64(total, totals[(n * splits + i) * HDP + channel]);
    }
    int pos = positionOf(row);
    dst[(row * heads + head) * HD + channel] = outputOf(total, topExponent(n, pos), denominatorOf(n, pos));
}
