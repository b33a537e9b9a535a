#version 450
#extension GL_GOOGLE_include_directive : require

// Outputs of linear_matrix.comp from the sums of the parts of the inputs: ivec4 [parts][WEIGHT_LIMBS][3 limbs][rows][padded / 4],
// the third limb undefined but for wide rows. Workgroup (outputs, rows), an invocation for each four outputs.

#extension GL_EXT_control_flow_attributes : require

layout(local_size_x = 64) in;
#define PARTS
#include "linear.glsl"

const uint AHEAD = 4u;

layout(std430, set = 0, binding = 6) readonly buffer Sums { ivec4 partial[]; };

// sum adds up the parts of limb l for four outputs, AHEAD loads at a time.
ivec4 sum(uint l, uint row, uint n) {
    ivec4 s = ivec4(0);
    for (uint p = 0u; p < parts; p += AHEAD) {
        ivec4 v[AHEAD];
        [[unroll]] for (uint i = 0u; i < AHEAD; i++) {
            v[i] = p + i < parts ? partial[((((p + i) * WEIGHT_LIMBS * 3u + l) * rows + row) * padded + n) / 4u] : ivec4(0);
        }
        [[unroll]] for (uint i = 0u; i < AHEAD; i++) {
            s += v[i];
        }
    }
    return s;
}

void main() {
    uint n = gl_GlobalInvocationID.x * 4u;
    uint row = row0 + gl_WorkGroupID.y;
    if (n >= count) {
        return;
    }
    ivec4 u[WEIGHT_LIMBS * 3u];
    [[unroll]] for (uint l = 0u; l < WEIGHT_LIMBS * 3u; l++) {
        u[l] = l % 3u < 2u || wideRow(row) ? sum(l, row, n) : ivec4(0);
    }
    for (uint j = 0u; j < 4u && n + j < count; j++) {
        uint b = (WEIGHT_LIMBS - 1u) * 3u;
        store(row, n + j, ivec3(u[0][j], u[1][j], u[2][j]), ivec3(u[b][j], u[b + 1u][j], u[b + 2u][j]));
    }
}
