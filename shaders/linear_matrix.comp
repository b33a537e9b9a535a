#version 450
#extension GL_GOOGLE_include_directive : require
//variant linear_matrix COOPERATIVE
//variant linear_matrix_tiled DP4A

// Linear for many rows on matrices: products of 16 x 32 by 32 x 16 int8, summed in int32. A subgroup computes TILES_M x TILES_N
// of them for each of two limbs of the rows, a workgroup WARPS_M x WARPS_N of those; 16 * STEP inputs at a time go through
// shared memory, the next ones being on their way in registers. Workgroup (outputs, rows, part of the inputs).
//
// The limbs' sums are joined in the matrices, all of which hold the same elements in the same places. Outputs, or the sums of a
// part of the inputs, leave them by way of shared memory, since which invocation holds which element is the device's affair:
// 16 rows of each subgroup at a time.

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
layout(constant_id = 9) const bool SPLIT = false;  // the inputs, among workgroups: the sums go to linear_finish.comp
layout(constant_id = 10) const uint SUBGROUP = 32u;
layout(constant_id = 11) const uint BAND = 1u;     // tiles of rows that pass over the outputs together

layout(std430, set = 0, binding = 6) writeonly buffer Sums { ivec4 partial[]; }; // linear_finish.comp

const uint WARP_M = 16u * TILES_M;
const uint WARP_N = 16u * TILES_N;
const uint TILE_M = WARP_M * WARPS_M;
const uint TILE_N = WARP_N * WARPS_N;
const uint PITCH = STEP + 1u; // keeps neighbours in other banks
const uint STAGED = 2u * TILE_M + TILE_N; // rows of a step: two planes of limbs, then weights
const uint LIMB_LOADS = 2u * TILE_M * STEP / THREADS;
const uint LOADS = STAGED * STEP / THREADS;
const uint APART = THREADS / STEP; // rows between two loads of an invocation, a divisor of TILE_M
const uint STRIP_VECTORS = 16u * WARPS_M * TILE_N / 4u; // sums of a strip: 16 rows of each subgroup
const uint SHARED = STAGED * PITCH > STRIP_VECTORS ? STAGED * PITCH : STRIP_VECTORS;
const uint MINE = STRIP_VECTORS / THREADS; // vectors of 4 outputs of a strip for each invocation

shared uvec4 stage[SHARED];
#define MATRICES stage
#include "matrix.glsl"
shared uint tileWide;

uvec4 loaded[LOADS];
const uint OF_LIMB = TILES_M * TILES_N;
SUMS sums[2u * OF_LIMB]; // of the first limb of the rows and of the second, or, where those two are joined, of the third
SUMS total[OF_LIMB];     // of the weights' limbs so far

uint n0, m0, warpM, warpN;
uint kBegin, kEnd; // vectors of the inputs
uint limbsAt, planeApart, lastRow; // where the limbs begin, rows from a plane to the next, or 0 where there is none, the last row
uint weightsAt, lastOutput;

// aim points the loads at the limbs from plane on, and at the weights' limb b. Rows and outputs that there are not are the last one.
void aim(uint plane, uint b) {
    limbsAt = limbRow(plane, m0);
    planeApart = plane == 0u ? rows : 0u;
    lastRow = rows - 1u - m0;
    weightsAt = weightRow(b, n0);
    lastOutput = padded - 1u - n0;
}

// load gives vector i of an invocation of the step at vector k. It computes where that is each time: kept, these places would take
// registers that the sums need.
uvec4 load(uint i, uint k) {
    uint r = gl_LocalInvocationID.x / STEP;
    uint v = gl_LocalInvocationID.x % STEP;
    uint away = i * APART;
    if (i < LIMB_LOADS) {
        return limbs[limbsAt + (away / TILE_M * planeApart + min(r + away % TILE_M, lastRow)) * KV + v + k];
    }
    return weights[weightsAt + min(r + away - 2u * TILE_M, lastOutput) * KV + v + k];
}

// fetch reads the step at vector k.
void fetch(uint k) {
    if (k + STEP <= kEnd) {
        BY_MATRIX for (uint i = 0u; i < LOADS; i++) {
            loaded[i] = load(i, k);
        }
    } else {
        BY_MATRIX for (uint i = 0u; i < LOADS; i++) {
            loaded[i] = k + gl_LocalInvocationID.x % STEP < kEnd ? load(i, k) : uvec4(0u);
        }
    }
}

// fill brings to stage what fetch has read.
void fill() {
    BY_MATRIX for (uint i = 0u; i < LOADS; i++) {
        uint v = gl_LocalInvocationID.x + i * THREADS;
        stage[v / STEP * PITCH + v % STEP] = loaded[i];
    }
}

// multiply adds the products of a step for count planes, to the last sums.
void multiply(uint count) {
    BY_MATRIX for (uint k = 0u; k < STEP / 2u; k++) {
        RIGHT w[TILES_N];
        BY_MATRIX for (uint j = 0u; j < TILES_N; j++) {
            w[j] = right((2u * TILE_M + warpN + j * 16u) * PITCH + k * 2u, PITCH);
        }
        BY_MATRIX for (uint plane = 0u; plane < count; plane++) {
            BY_MATRIX for (uint i = 0u; i < TILES_M; i++) {
                LEFT x = left((plane * TILE_M + warpM + i * 16u) * PITCH + k * 2u, PITCH);
                BY_MATRIX for (uint j = 0u; j < TILES_N; j++) {
                    uint s = ((2u - count + plane) * TILES_M + i) * TILES_N + j;
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
    BY_MATRIX for (uint s = plane == 0u ? 0u : OF_LIMB; s < 2u * OF_LIMB; s++) {
        sums[s] = noSums();
    }
    aim(plane, b);
    fetch(kBegin);
    if (plane == 0u && b == 0u) {
        findWide();
    }
    barrier(); // the last use of stage
    for (uint k = kBegin; k < kEnd; k += STEP) {
        fill();
        barrier();
        fetch(k + STEP);
        if (plane == 0u) {
            multiply(2u);
        } else {
            multiply(1u);
        }
        barrier();
    }
}

// rowOf is the row of vector v of a strip.
uint rowOf(uint strip, uint v) {
    uint r = v / (TILE_N / 4u);
    return m0 + r / 16u * WARP_M + strip * 16u + r % 16u;
}

// outputOf is the first output of vector v of a strip.
uint outputOf(uint v) { return n0 + v % (TILE_N / 4u) * 4u; }

// storeStrip brings 16 rows of each subgroup of the matrices from number s on to stage, for all invocations.
void storeStrip(uint s) {
    barrier();
    BY_MATRIX for (uint j = 0u; j < TILES_N; j++) {
        store(sums[s + j], (gl_SubgroupID / WARPS_N * 16u * TILE_N + warpN + j * 16u) / 4u, TILE_N / 4u);
    }
    barrier();
}

// keepParts writes the sums from number s on, those of limb l of the rows with the weights' limb b, to partial.
void keepParts(uint s, uint l, uint b) {
    uint at = (gl_WorkGroupID.z * WEIGHT_LIMBS + b) * 3u + l;
    BY_MATRIX for (uint strip = 0u; strip < TILES_M; strip++) {
        storeStrip(s + strip * TILES_N);
        BY_MATRIX for (uint i = 0u; i < MINE; i++) {
            uint v = gl_LocalInvocationID.x + i * THREADS;
            if (rowOf(strip, v) < rows && outputOf(v) < padded) {
                partial[((at * rows + rowOf(strip, v)) * padded + outputOf(v)) / 4u] = ivec4(stage[v]);
            }
        }
    }
}

// What follows is done with each element of matrix s, whose joined sums are the bits of floats: to the first limb of the rows goes
// the second, then the third where wides are not zero, then it goes to the total.
#define JOIN_SECOND(e) { \
        precise float t = float(SUM(sums[s], e)) * 256.0 + float(SUM(sums[OF_LIMB + s], e)); \
        SUM(sums[s], e) = floatBitsToInt(t); \
    }
#define JOIN_THIRD(e) { \
        precise float t = intBitsToFloat(SUM(sums[s], e)) * 256.0 + float(SUM(sums[OF_LIMB + s], e)); \
        SUM(sums[s], e) = SUM(wides, e) != 0 ? floatBitsToInt(t) : SUM(sums[s], e); \
    }
#define JOIN_TOTAL(e) { \
        precise float t = intBitsToFloat(SUM(total[s], e)) * 256.0 + intBitsToFloat(SUM(sums[s], e)); \
        SUM(sums[s], e) = floatBitsToInt(t); \
    }

void joinSecond() {
    BY_MATRIX for (uint s = 0u; s < OF_LIMB; s++) {
        EACH_SUM(JOIN_SECOND)
    }
}

void joinThird() {
    for (uint r = gl_LocalInvocationID.x; r < TILE_M; r += THREADS) {
        stage[r / 4u][r % 4u] = wideRow(min(m0 + r, rows - 1u)) ? 1u : 0u;
    }
    barrier();
    BY_MATRIX for (uint strip = 0u; strip < TILES_M; strip++) {
        SUMS wides = rowValues((warpM + strip * 16u) / 4u);
        BY_MATRIX for (uint s = strip * TILES_N; s < (strip + 1u) * TILES_N; s++) {
            EACH_SUM(JOIN_THIRD)
        }
    }
}

void joinTotal(bool none) {
    BY_MATRIX for (uint s = 0u; s < OF_LIMB; s++) {
        if (!none) {
            EACH_SUM(JOIN_TOTAL)
        }
        total[s] = sums[s];
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
        if (SPLIT) {
            keepParts(0u, 0u, b);
            keepParts(OF_LIMB, 1u, b);
            if (tileWide != 0u) {
                accumulate(2u, b);
                keepParts(OF_LIMB, 2u, b);
            }
        } else {
            joinSecond();
            if (tileWide != 0u) {
                accumulate(2u, b);
                joinThird();
            }
            joinTotal(b == 0u);
        }
    }
    if (SPLIT) {
        return;
    }
    BY_MATRIX for (uint strip = 0u; strip < TILES_M; strip++) {
        storeStrip(strip * TILES_N);
        BY_MATRIX for (uint i = 0u; i < MINE; i++) {
            uint v = gl_LocalInvocationID.x + i * THREADS;
            uint row = rowOf(strip, v);
            uint n = outputOf(v);
            if (row < rows) {
                vec4 t = uintBitsToFloat(stage[v]);
                BY_MATRIX for (uint j = 0u; j < 4u; j++) {
                    if (n + j < count) {
                        y[row * N + first + n + j] = scaled(row, n + j, t[j]);
                    }
                }
            }
        }
    }
}
