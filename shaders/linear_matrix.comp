#version 450
#extension GL_GOOGLE_include_directive : require
//cooperative

// Linear for many rows on cooperative matrices: products of MM x KK by KK x NN int8, summed in int32. A subgroup computes
// TILES_M x TILES_N of them, a workgroup WARPS_M x WARPS_N of those; 16 * STEP inputs at a time go through two buffers in shared
// memory, one being filled while the other is used. Workgroup (outputs, rows).
//
// The sums of a limb of the rows leave the matrices by way of shared memory, since which invocation holds which element
// is the device's affair.

#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_explicit_arithmetic_types_int8 : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_NV_cooperative_matrix : require
#extension GL_NV_integer_cooperative_matrix : require

layout(local_size_x_id = 0) in;
#include "linear.glsl"
layout(constant_id = 3) const uint MM = 16u;
layout(constant_id = 4) const uint NN = 16u;
layout(constant_id = 5) const uint KK = 32u;
layout(constant_id = 6) const uint WARPS_M = 2u;
layout(constant_id = 7) const uint WARPS_N = 2u;
layout(constant_id = 8) const uint TILES_M = 2u;
layout(constant_id = 9) const uint TILES_N = 4u;
layout(constant_id = 10) const uint THREADS = 128u; // local_size_x again
layout(constant_id = 11) const uint STEP = 4u;      // vectors of 16 inputs at a time

const uint WARP_M = MM * TILES_M;
const uint WARP_N = NN * TILES_N;
const uint TILE_M = WARP_M * WARPS_M;
const uint TILE_N = WARP_N * WARPS_N;
const uint PITCH = STEP + 1u; // keeps neighbours in other banks
const uint STAGED = 2u * TILE_M + TILE_N; // rows of a buffer: two planes of limbs, then weights
const uint BUFFER = STAGED * PITCH;
const uint LOADS = STAGED * STEP / THREADS;
const uint SUM_VECTORS = TILE_M * TILE_N / 4u;
const uint SHARED = 2u * BUFFER > SUM_VECTORS ? 2u * BUFFER : SUM_VECTORS;
const uint MINE = SUM_VECTORS / THREADS; // vectors of 4 outputs for each invocation

shared uvec4 stage[SHARED];
shared uint tileWide;

uvec4 loaded[LOADS];
icoopmatNV<32, gl_ScopeSubgroup, MM, NN> sums[2u * TILES_M * TILES_N];
vec4 joinedSums[MINE];
vec4 total[MINE];

uint n0, m0, warpM, warpN;

// fetch reads the step at vector k of the limbs from plane on, and of the weights' limb b.
void fetch(uint k, uint plane, uint b) {
    [[unroll]] for (uint i = 0u; i < LOADS; i++) {
        uint v = gl_LocalInvocationID.x + i * THREADS;
        uint r = v / STEP;
        uint at = k + v % STEP;
        if (at >= KV) {
            loaded[i] = uvec4(0u);
        } else if (r < 2u * TILE_M) {
            uint row = min(m0 + r % TILE_M, rows - 1u);
            loaded[i] = limbs[limbRow(min(plane + r / TILE_M, 2u), row) + at];
        } else {
            loaded[i] = weights[weightRow(b, n0 + r - 2u * TILE_M) + at];
        }
    }
}

void fill(uint buf) {
    [[unroll]] for (uint i = 0u; i < LOADS; i++) {
        uint v = gl_LocalInvocationID.x + i * THREADS;
        stage[buf * BUFFER + v / STEP * PITCH + v % STEP] = loaded[i];
    }
}

// multiply adds the products of a buffer for count planes.
void multiply(uint buf, uint count) {
    uint base = buf * BUFFER;
    [[unroll]] for (uint k = 0u; k < STEP * 16u / KK; k++) {
        icoopmatNV<8, gl_ScopeSubgroup, KK, NN> w[TILES_N];
        [[unroll]] for (uint j = 0u; j < TILES_N; j++) {
            coopMatLoadNV(w[j], stage, base + (2u * TILE_M + warpN + j * NN) * PITCH + k * (KK / 16u), PITCH, true);
        }
        [[unroll]] for (uint plane = 0u; plane < count; plane++) {
            [[unroll]] for (uint i = 0u; i < TILES_M; i++) {
                icoopmatNV<8, gl_ScopeSubgroup, MM, KK> x;
                coopMatLoadNV(x, stage, base + (plane * TILE_M + warpM + i * MM) * PITCH + k * (KK / 16u), PITCH, false);
                [[unroll]] for (uint j = 0u; j < TILES_N; j++) {
                    uint s = (plane * TILES_M + i) * TILES_N + j;
                    sums[s] = coopMatMulAddNV(x, w[j], sums[s]);
                }
            }
        }
    }
}

// accumulate computes the unit sums of two planes of limbs, or of the third alone, with the weights' limb b.
void accumulate(uint plane, uint b) {
    uint count = plane == 0u ? 2u : 1u;
    [[unroll]] for (uint s = 0u; s < 2u * TILES_M * TILES_N; s++) {
        sums[s] = icoopmatNV<32, gl_ScopeSubgroup, MM, NN>(0);
    }
    fetch(0u, plane, b);
    barrier(); // the buffers' last use
    fill(0u);
    barrier();
    uint buf = 0u;
    for (uint k = STEP; k < KV; k += STEP) {
        fetch(k, plane, b);
        if (count == 2u) {
            multiply(buf, 2u);
        } else {
            multiply(buf, 1u);
        }
        buf = 1u - buf;
        fill(buf);
        barrier();
    }
    if (count == 2u) {
        multiply(buf, 2u);
    } else {
        multiply(buf, 1u);
    }
}

// join brings the sums of a plane to the invocations that combine them: the first of a limb, or with 256 times what there is.
void join(uint plane, bool first, bool wideOnly) {
    barrier();
    [[unroll]] for (uint i = 0u; i < TILES_M; i++) {
        [[unroll]] for (uint j = 0u; j < TILES_N; j++) {
            uint at = ((warpM + i * MM) * TILE_N + warpN + j * NN) / 4u;
            coopMatStoreNV(sums[(plane * TILES_M + i) * TILES_N + j], stage, at, TILE_N / 4u, false);
        }
    }
    barrier();
    [[unroll]] for (uint i = 0u; i < MINE; i++) {
        uint v = gl_LocalInvocationID.x + i * THREADS;
        vec4 u = vec4(ivec4(stage[v]));
        if (first) {
            joinedSums[i] = u;
        } else {
            precise vec4 t = joinedSums[i] * 256.0 + u;
            bool take = !wideOnly || wideRow(min(m0 + v / (TILE_N / 4u), rows - 1u));
            joinedSums[i] = take ? t : joinedSums[i];
        }
    }
}

void main() {
    n0 = gl_WorkGroupID.x * TILE_N;
    m0 = row0 + gl_WorkGroupID.y * TILE_M;
    warpM = gl_SubgroupID / WARPS_N * WARP_M;
    warpN = gl_SubgroupID % WARPS_N * WARP_N;
    if (gl_LocalInvocationID.x == 0u) {
        tileWide = 0u;
    }
    barrier();
    for (uint m = gl_LocalInvocationID.x; m < TILE_M && m0 + m < rows; m += THREADS) {
        if (wideRow(m0 + m)) {
            tileWide = 1u;
        }
    }
    barrier();
    bool wide = tileWide != 0u;

    [[unroll]] for (uint b = 0u; b < WEIGHT_LIMBS; b++) {
        accumulate(0u, b);
        join(0u, true, false);
        join(1u, false, false);
        if (wide) {
            accumulate(2u, b);
            join(0u, false, true);
        }
        [[unroll]] for (uint i = 0u; i < MINE; i++) {
            if (b == 0u) {
                total[i] = joinedSums[i];
            } else {
                precise vec4 t = total[i] * 256.0 + joinedSums[i];
                total[i] = t;
            }
        }
    }

    [[unroll]] for (uint i = 0u; i < MINE; i++) {
        uint v = gl_LocalInvocationID.x + i * THREADS;
        uint row = m0 + v / (TILE_N / 4u);
        uint n = n0 + v % (TILE_N / 4u) * 4u;
        if (row < rows) {
            [[unroll]] for (uint j = 0u; j < 4u; j++) {
                if (n + j < count) {
                    y[row * N + first + n + j] = scaled(row, n + j, total[i][j]);
                }
            }
        }
    }
}
