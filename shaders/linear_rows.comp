#version 450
#extension GL_GOOGLE_include_directive : require
//variant linear_rows_dp4a DP4A
//variant linear_rows_lut LUT

// Linear for few rows: each subgroup computes OUTPUTS outputs for ROWS rows of the batch, reading its weights once, UNROLL
// vectors of each output ahead. Workgroup (outputs).

#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require

layout(local_size_x_id = 0) in;
#include "linear.glsl"
layout(constant_id = 3) const uint OUTPUTS = 1u;
layout(constant_id = 4) const uint ROWS = 1u; // OUTPUTS * ROWS <= subgroup size
layout(constant_id = 5) const uint UNROLL = 1u;

// sums[((o * ROWS + m) * WEIGHT_LIMBS + b) * 3 + plane]
const uint SUMS = OUTPUTS * ROWS * WEIGHT_LIMBS * 3u;
int sums[SUMS];

// rowOf is row m of the ROWS, the last of the batch for those beyond it, which are not stored.
uint rowOf(uint m) { return min(row0 + m, rows - 1u); }

uint sumAt(uint o, uint m, uint b) { return ((o * ROWS + m) * WEIGHT_LIMBS + b) * 3u; }

void main() {
    uint n = (gl_WorkGroupID.x * gl_NumSubgroups + gl_SubgroupID) * OUTPUTS;
    if (n >= count) {
        return;
    }
    bool anyWide = false;
    [[unroll]] for (uint m = 0u; m < ROWS; m++) {
        anyWide = anyWide || wideRow(rowOf(m));
    }
    [[unroll]] for (uint i = 0u; i < SUMS; i++) {
        sums[i] = 0;
    }
    uvec4 w[UNROLL * OUTPUTS * WEIGHT_LIMBS];
    for (uint k = gl_SubgroupInvocationID; k < KV; k += UNROLL * gl_SubgroupSize) {
        [[unroll]] for (uint u = 0u; u < UNROLL; u++) {
            uint at = k + u * gl_SubgroupSize;
            [[unroll]] for (uint b = 0u; b < WEIGHT_LIMBS; b++) {
                [[unroll]] for (uint o = 0u; o < OUTPUTS; o++) {
                    w[(u * OUTPUTS + o) * WEIGHT_LIMBS + b] = at < KV ? weights[weightRow(b, n + o) + at] : uvec4(0u);
                }
            }
        }
        [[unroll]] for (uint u = 0u; u < UNROLL; u++) {
            uint at = min(k + u * gl_SubgroupSize, KV - 1u); // beyond, the weights are zero
            [[unroll]] for (uint m = 0u; m < ROWS; m++) {
                uvec4 x0 = limbs[limbRow(0u, rowOf(m)) + at];
                uvec4 x1 = limbs[limbRow(1u, rowOf(m)) + at];
                [[unroll]] for (uint o = 0u; o < OUTPUTS; o++) {
                    [[unroll]] for (uint b = 0u; b < WEIGHT_LIMBS; b++) {
                        uint s = sumAt(o, m, b);
                        uvec4 wv = w[(u * OUTPUTS + o) * WEIGHT_LIMBS + b];
                        sums[s] = dot16(sums[s], wv, x0);
                        sums[s + 1u] = dot16(sums[s + 1u], wv, x1);
                    }
                }
                if (anyWide) {
                    uvec4 x2 = limbs[limbRow(2u, rowOf(m)) + at];
                    [[unroll]] for (uint o = 0u; o < OUTPUTS; o++) {
                        [[unroll]] for (uint b = 0u; b < WEIGHT_LIMBS; b++) {
                            uint s = sumAt(o, m, b) + 2u;
                            sums[s] = dot16(sums[s], w[(u * OUTPUTS + o) * WEIGHT_LIMBS + b], x2);
                        }
                    }
                }
            }
        }
    }
    // Each invocation takes the sums of one output and row.
    ivec3 mine = ivec3(0);
    ivec3 mine2 = ivec3(0);
    [[unroll]] for (uint o = 0u; o < OUTPUTS; o++) {
        [[unroll]] for (uint m = 0u; m < ROWS; m++) {
            bool me = gl_SubgroupInvocationID == o * ROWS + m;
            [[unroll]] for (uint b = 0u; b < WEIGHT_LIMBS; b++) {
                uint s = sumAt(o, m, b);
                ivec3 total = ivec3(subgroupAdd(sums[s]), subgroupAdd(sums[s + 1u]), 0);
                if (anyWide) {
                    total.z = subgroupAdd(sums[s + 2u]);
                }
                if (me && b == 0u) {
                    mine = total;
                } else if (me) {
                    mine2 = total;
                }
            }
        }
    }
    uint o = gl_SubgroupInvocationID / ROWS;
    uint row = row0 + gl_SubgroupInvocationID % ROWS;
    if (o < OUTPUTS && n + o < count && row < rows) {
        store(row, n + o, mine, mine2);
    }
}
