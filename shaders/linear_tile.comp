#version 450
#extension GL_GOOGLE_include_directive : require
//variant linear_tile_dp4a DP4A
//variant linear_tile_lut LUT

// Linear for many rows: a workgroup of 16 x 16 invocations, each with PER_N outputs for PER_M rows, computes a tile, 64 inputs
// at a time through shared memory. Workgroup (outputs, rows).

#extension GL_EXT_control_flow_attributes : require

layout(local_size_x = 256) in;
#include "linear.glsl"
layout(constant_id = 3) const uint PER_N = 4u;
layout(constant_id = 4) const uint PER_M = 2u;

const uint TILE_N = 16u * PER_N;
const uint TILE_M = 16u * PER_M;
const uint STEP = 4u;        // vectors of 16 inputs
const uint PITCH = STEP + 1u; // keeps neighbours in other banks

shared uvec4 sharedW[WEIGHT_LIMBS * TILE_N * PITCH];
shared uvec4 sharedX[3u * TILE_M * PITCH];
shared uint tileWide;

// sums[(((i * PER_N + j) * WEIGHT_LIMBS) + b) * 3 + plane] of row ty + 16 i, output tx + 16 j
const uint SUMS = PER_M * PER_N * WEIGHT_LIMBS * 3u;
int sums[SUMS];

void main() {
    uint t = gl_LocalInvocationID.x;
    uint tx = t % 16u;
    uint ty = t / 16u;
    uint n0 = gl_WorkGroupID.x * TILE_N;
    uint m0 = row0 + gl_WorkGroupID.y * TILE_M;

    if (t == 0u) {
        tileWide = 0u;
    }
    barrier();
    if (t < TILE_M && m0 + t < rows && wideRow(m0 + t)) {
        tileWide = 1u;
    }
    barrier();
    uint planes = tileWide != 0u ? 3u : 2u;
    [[unroll]] for (uint i = 0u; i < SUMS; i++) {
        sums[i] = 0;
    }

    for (uint k0 = 0u; k0 < KV; k0 += STEP) {
        for (uint i = t; i < WEIGHT_LIMBS * TILE_N * STEP; i += 256u) {
            uint n = i / STEP % TILE_N;
            sharedW[i / STEP * PITCH + i % STEP] = weights[weightRow(i / (STEP * TILE_N), n0 + n) + k0 + i % STEP];
        }
        for (uint i = t; i < planes * TILE_M * STEP; i += 256u) {
            uint m = min(m0 + i / STEP % TILE_M, rows - 1u);
            sharedX[i / STEP * PITCH + i % STEP] = limbs[limbRow(i / (STEP * TILE_M), m) + k0 + i % STEP];
        }
        barrier();
        for (uint k = 0u; k < STEP; k++) {
            uvec4 w[PER_N * WEIGHT_LIMBS];
            [[unroll]] for (uint j = 0u; j < PER_N; j++) {
                [[unroll]] for (uint b = 0u; b < WEIGHT_LIMBS; b++) {
                    w[j * WEIGHT_LIMBS + b] = sharedW[(b * TILE_N + tx + 16u * j) * PITCH + k];
                }
            }
            [[unroll]] for (uint i = 0u; i < PER_M; i++) {
                [[unroll]] for (uint plane = 0u; plane < 3u; plane++) {
                    if (plane < 2u || planes == 3u) {
                        uvec4 x = sharedX[(plane * TILE_M + ty + 16u * i) * PITCH + k];
                        [[unroll]] for (uint j = 0u; j < PER_N * WEIGHT_LIMBS; j++) {
                            uint s = (i * PER_N * WEIGHT_LIMBS + j) * 3u + plane;
                            sums[s] = dot16(sums[s], w[j], x);
                        }
                    }
                }
            }
        }
        barrier();
    }

    [[unroll]] for (uint i = 0u; i < PER_M; i++) {
        uint row = m0 + ty + 16u * i;
        [[unroll]] for (uint j = 0u; j < PER_N; j++) {
            uint n = n0 + tx + 16u * j;
            if (row < rows && n < count) {
                uint s = (i * PER_N + j) * WEIGHT_LIMBS * 3u;
                uint s2 = s + (WEIGHT_LIMBS - 1u) * 3u;
                store(row, n, ivec3(sums[s], sums[s + 1u], sums[s + 2u]), ivec3(sums[s2], sums[s2 + 1u], sums[s2 + 2u]));
            }
        }
    }
}
