#version 450
#extension GL_GOOGLE_include_directive : require
//variant experts_linear_dp4a DP4A
//variant experts_linear_lut LUT

// One matrix of one expert for the slots that chose it (experts.glsl), ROWS at a time: each subgroup computes an output.
// The input of a slot is its row of the batch, or, behind the activation, a row for each slot; the output is a row for
// each slot. Workgroup (outputs).

layout(local_size_x_id = 0) in;
#define EXPERTS
#include "linear.glsl"
layout(constant_id = 3) const bool BY_SLOT = false; // the input has a row for each slot
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require

layout(std430, set = 0, binding = 7) readonly buffer List { uint list[]; };

const uint ROWS = 4u;

uint inputRow(uint slot) { return BY_SLOT ? slot : slot / topK; }

void main() {
    uint n = gl_WorkGroupID.x * gl_NumSubgroups + gl_SubgroupID;
    if (n >= count) {
        return;
    }
    uint last = list[expert + 1u];
    for (uint at = list[expert]; at < last; at += ROWS) {
        uint slot[ROWS];
        ivec3 u[ROWS], u2[ROWS];
        for (uint m = 0u; m < ROWS; m++) {
            slot[m] = list[experts + 1u + min(at + m, last - 1u)];
            u[m] = ivec3(0);
            u2[m] = ivec3(0);
        }
        STEPWISE for (uint k = gl_SubgroupInvocationID; k < KV; k += gl_SubgroupSize) {
            uvec4 w = weights[weightRow(0u, n) + k];
            uvec4 w2 = WEIGHT_LIMBS == 2u ? weights[weightRow(1u, n) + k] : uvec4(0u);
            for (uint m = 0u; m < ROWS; m++) {
                uint row = inputRow(slot[m]);
                uint planes = wideRow(row) ? 3u : 2u;
                [[dont_unroll]] for (uint p = 0u; p < planes; p++) {
                    uvec4 x = limbs[limbRow(p, row) + k];
                    u[m][p] = dot16(u[m][p], w, x);
                    if (WEIGHT_LIMBS == 2u) {
                        u2[m][p] = dot16(u2[m][p], w2, x);
                    }
                }
            }
        }
        for (uint m = 0u; m < ROWS; m++) {
            ivec3 sums = subgroupAdd(u[m]);
            ivec3 sums2 = ivec3(0);
            if (WEIGHT_LIMBS == 2u) {
                sums2 = subgroupAdd(u2[m]);
            }
            if (gl_SubgroupInvocationID == m && at + m < last) {
                y[slot[m] * N + first + n] = combined(inputRow(slot[m]), n, sums, sums2);
            }
        }
    }
}
