#version 450
#extension GL_GOOGLE_include_directive : require
//variant linear_matrix COOPERATIVE
//variant linear_matrix_tiled DP4A

// Linear for many rows on matrices: products of 16 x 32 by 32 x 16 int8, summed in int32. A subgroup computes TILES_M x TILES_N
// of them for each of two limbs of the rows, a workgroup WARPS_M x WARPS_N of those; 16 * STEP inputs at a time go through
// shared memory, the next ones being on their way in registers. Workgroup (outputs, rows, part of the inputs).
//
// The sums of a limb of the rows leave the matrices by way of shared memory, since which invocation holds which element
// is the device's affair: 16 rows of each subgroup at a time.

#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require

layout(local_size_x_id = 0) in;
#include "linear.glsl"
layout(constant_id = 3) const uint WARPS_M = 2u;
layout(constant_id = 4) const uint WARPS_N = 2u;
layout(constant_id = 5) const uint TILES_M = 2u;
layout(constant_id = 6) const uint TILES_N = 4u;
layout(constant_id = 7) const uint THREADS = 128u; // local_size_x again
layout(constant_id = 8) const uint STEP = 4u;      // vectors of 16 inputs at a time
layout(constant_id = 9) const uint BUFFERS = 2u;   // two spare a barrier, one leaves room for longer steps
layout(constant_id = 10) const bool SPLIT = false; // the inputs, among workgroups: the sums go to linear_finish.comp
layout(constant_id = 11) const uint SUBGROUP = 32u;
layout(constant_id = 12) const uint BAND = 1u;     // tiles of rows that pass over the outputs together

layout(std430, set = 0, binding = 6) writeonly buffer Sums { ivec4 partial[]; }; // linear_finish.comp

const uint WARP_M = 16u * TILES_M;
const uint WARP_N = 16u * TILES_N;
const uint TILE_M = WARP_M * WARPS_M;
const uint TILE_N = WARP_N * WARPS_N;
const uint PITCH = STEP + 1u; // keeps neighbours in other banks
const uint STAGED = 2u * TILE_M + TILE_N; // rows of a buffer: two planes of limbs, then weights
const uint BUFFER = STAGED * PITCH;
const uint LIMB_LOADS = 2u * TILE_M * STEP / THREADS;
const uint LOADS = STAGED * STEP / THREADS;
const uint STRIP_VECTORS = 16u * WARPS_M * TILE_N / 4u; // sums of a strip: 16 rows of each subgroup
const uint SHARED = BUFFERS * BUFFER > STRIP_VECTORS ? BUFFERS * BUFFER : STRIP_VECTORS;
const uint MINE = STRIP_VECTORS / THREADS; // vectors of 4 outputs of a strip for each invocation

shared uvec4 stage[SHARED];
#define MATRICES stage
#include "matrix.glsl"
shared uint tileWide;

uvec4 loaded[LOADS];
uint base[LOADS];
SUMS sums[2u * TILES_M * TILES_N];
vec4 joinedSums[TILES_M * MINE];
vec4 total[TILES_M * MINE];

uint n0, m0, warpM, warpN;
uint kBegin, kEnd; // vectors of the inputs

// aim points the loads at the limbs from plane on, and at the weights' limb b.
void aim(uint plane, uint b) {
    BY_MATRIX for (uint i = 0u; i < LOADS; i++) {
        uint v = gl_LocalInvocationID.x + i * THREADS;
        uint r = v / STEP;
        if (i < LIMB_LOADS) {
            base[i] = limbRow(min(plane + r / TILE_M, 2u), min(m0 + r % TILE_M, rows - 1u)) + v % STEP;
        } else {
            base[i] = weightRow(b, min(n0 + r - 2u * TILE_M, padded - 1u)) + v % STEP;
        }
    }
}

// fetch reads the step at vector k.
void fetch(uint k) {
    BY_MATRIX for (uint i = 0u; i < LOADS; i++) {
        uint v = gl_LocalInvocationID.x + i * THREADS;
        bool inside = k + v % STEP < kEnd;
        uvec4 x = uvec4(0u);
        if (inside) {
            if (i < LIMB_LOADS) {
                x = limbs[base[i] + k];
            } else {
                x = weights[base[i] + k];
            }
        }
        loaded[i] = x;
    }
}

void fill(uint buf) {
    BY_MATRIX for (uint i = 0u; i < LOADS; i++) {
        uint v = gl_LocalInvocationID.x + i * THREADS;
        stage[buf * BUFFER + v / STEP * PITCH + v % STEP] = loaded[i];
    }
}

// multiply adds the products of a buffer for count planes.
void multiply(uint buf, uint count) {
    uint at = buf * BUFFER;
    BY_MATRIX for (uint k = 0u; k < STEP / 2u; k++) {
        RIGHT w[TILES_N];
        BY_MATRIX for (uint j = 0u; j < TILES_N; j++) {
            w[j] = right(at + (2u * TILE_M + warpN + j * 16u) * PITCH + k * 2u, PITCH);
        }
        BY_MATRIX for (uint plane = 0u; plane < count; plane++) {
            BY_MATRIX for (uint i = 0u; i < TILES_M; i++) {
                LEFT x = left(at + (plane * TILE_M + warpM + i * 16u) * PITCH + k * 2u, PITCH);
                BY_MATRIX for (uint j = 0u; j < TILES_N; j++) {
                    uint s = (plane * TILES_M + i) * TILES_N + j;
                    sums[s] = plusProduct(sums[s], x, w[j]);
                }
            }
        }
    }
}

// findWide sets tileWide, to be seen after the next barrier.
void findWide() {
    bool wide = false;
    for (uint m = gl_LocalInvocationID.x; m < TILE_M && m0 + m < rows; m += THREADS) {
        wide = wide || wideRow(m0 + m);
    }
    if (gl_LocalInvocationID.x == 0u) {
        tileWide = 0u;
    }
    barrier();
    if (wide) {
        tileWide = 1u;
    }
}

// accumulate computes the unit sums of two planes of limbs, or of the third alone, with the weights' limb b.
void accumulate(uint plane, uint b) {
    BY_MATRIX for (uint s = 0u; s < 2u * TILES_M * TILES_N; s++) {
        sums[s] = noSums();
    }
    aim(plane, b);
    fetch(kBegin);
    if (plane == 0u && b == 0u) {
        findWide();
    }
    barrier(); // the buffers' last use
    uint buf = 0u;
    for (uint k = kBegin; k < kEnd; k += STEP) {
        fill(buf);
        barrier();
        fetch(k + STEP);
        if (plane == 0u) {
            multiply(buf, 2u);
        } else {
            multiply(buf, 1u);
        }
        if (BUFFERS == 2u) {
            buf = 1u - buf;
        } else {
            barrier();
        }
    }
}

// rowOf is the row of vector v of a strip.
uint rowOf(uint strip, uint v) {
    uint r = v / (TILE_N / 4u);
    return m0 + r / 16u * WARP_M + strip * 16u + r % 16u;
}

// outputOf is the first output of vector v of a strip.
uint outputOf(uint v) { return n0 + v % (TILE_N / 4u) * 4u; }

// join brings the sums of limb l of the rows to the invocations that combine them, with 256 times what there is of weight
// limb b, or to partial.
void join(uint l, uint b) {
    BY_MATRIX for (uint strip = 0u; strip < TILES_M; strip++) {
        barrier();
        BY_MATRIX for (uint j = 0u; j < TILES_N; j++) {
            uint at = (gl_SubgroupID / WARPS_N * 16u * TILE_N + warpN + j * 16u) / 4u;
            store(sums[(l % 2u * TILES_M + strip) * TILES_N + j], at, TILE_N / 4u);
        }
        barrier();
        BY_MATRIX for (uint i = 0u; i < MINE; i++) {
            uint v = gl_LocalInvocationID.x + i * THREADS;
            uint s = strip * MINE + i;
            if (SPLIT) {
                if (rowOf(strip, v) < rows && outputOf(v) < padded) {
                    uint at = (gl_WorkGroupID.z * WEIGHT_LIMBS + b) * 3u + l;
                    partial[((at * rows + rowOf(strip, v)) * padded + outputOf(v)) / 4u] = ivec4(stage[v]);
                }
                continue;
            }
            vec4 u = vec4(ivec4(stage[v]));
            if (l == 0u) {
                joinedSums[s] = u;
            } else {
                precise vec4 t = joinedSums[s] * 256.0 + u;
                bool take = l < 2u || wideRow(min(rowOf(strip, v), rows - 1u));
                joinedSums[s] = take ? t : joinedSums[s];
            }
        }
    }
}

// tile is the tile of outputs and rows of the workgroup: those that run at a time make a square, which reads least memory.
uvec2 tile() {
    uint id = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    uint first = id / (BAND * gl_NumWorkGroups.x) * BAND;
    uint rest = id - first * gl_NumWorkGroups.x;
    uint high = min(BAND, gl_NumWorkGroups.y - first);
    return uvec2(rest / high, first + rest % high);
}

void main() {
    uvec2 at = tile();
    n0 = at.x * TILE_N;
    m0 = row0 + at.y * TILE_M;
    warpM = gl_SubgroupID / WARPS_N * WARP_M;
    warpN = gl_SubgroupID % WARPS_N * WARP_N;
    kBegin = 0u;
    kEnd = KV;
    if (SPLIT) {
        uint share = ((KV + STEP - 1u) / STEP + gl_NumWorkGroups.z - 1u) / gl_NumWorkGroups.z * STEP;
        kBegin = gl_WorkGroupID.z * share;
        kEnd = min(KV, kBegin + share);
    }
    BY_MATRIX for (uint b = 0u; b < WEIGHT_LIMBS; b++) {
        accumulate(0u, b);
        join(0u, b);
        join(1u, b);
        if (tileWide != 0u) {
            accumulate(2u, b);
            join(2u, b);
        }
        BY_MATRIX for (uint i = 0u; i < TILES_M * MINE; i++) {
            if (b == 0u) {
                total[i] = joinedSums[i];
            } else {
                precise vec4 t = total[i] * 256.0 + joinedSums[i];
                total[i] = t;
            }
        }
    }
    if (SPLIT) {
        return;
    }

    BY_MATRIX for (uint i = 0u; i < TILES_M * MINE; i++) {
        uint v = gl_LocalInvocationID.x + i % MINE * THREADS;
        uint row = rowOf(i / MINE, v);
        uint n = outputOf(v);
        if (row < rows) {
            BY_MATRIX for (uint j = 0u; j < 4u; j++) {
                if (n + j < count) {
                    y[row * N + first + n + j] = scaled(row, n + j, total[i][j]);
                }
            }
        }
    }
}
