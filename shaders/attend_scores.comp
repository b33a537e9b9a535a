#version 450
//variant attend_scores_dp4a DP4A
//variant attend_scores_lut LUT
#extension GL_GOOGLE_include_directive : require

// Attention scores s_j (attend.glsl). Workgroup (block, tile of heads, tile of rows), an invocation for each position of the
// block. The blocks of a run of rows are counted from the first one its first row sees.

layout(local_size_x = 64) in;
layout(constant_id = 4) const bool CAP = false;
layout(constant_id = 5) const bool ALIBI = false;

#define TABLES 8
#define STATUS 9
#include "numerics.glsl"
#define PRODUCTS 11
#include "dot.glsl"
#include "attend.glsl"
#include "status.glsl"
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require

layout(std430, set = 0, binding = 1) readonly buffer Queries { uvec4 queries[]; }; // heads.comp
layout(std430, set = 0, binding = 2) readonly buffer Cache { uvec4 cache[]; };

#include "attend_score.glsl"
#include "attend_record.glsl"

shared uvec4 query[TILE * 2u * HDV];

void run(Tile t, uint from, uint to) {
    uint block = firstBlock(positionOf(from)) + gl_WorkGroupID.x;
    if (block * BLOCK > uint(positionOf(to - 1u))) {
        return;
    }
    uint p = gl_LocalInvocationID.x;

    barrier();
    for (uint i = p; i < TILE * 2u * HDV; i += BLOCK) {
        uint q = i / (2u * HDV);
        if (inRun(t, q, from, to)) {
            uint at = ((t.row + q / TILE_HEADS) * heads + t.head + q % TILE_HEADS) * (2u * HDV + 1u);
            query[i] = queries[at + i % (2u * HDV)];
            if (i % (2u * HDV) == 0u) {
                queryExp[q] = int(queries[at + 2u * HDV].x);
                highest[q] = 0u;
            }
        }
    }
    barrier();

    uint base = cacheBlock(slotOf(from), t.kvHead, block);
    int H[TILE], M[TILE], L[TILE];
    for (uint q = 0u; q < TILE; q++) {
        H[q] = 0;
        M[q] = 0;
        L[q] = 0;
    }
    STEPWISE for (uint c = 0u; c < HDV; c++) {
        uvec4 kh = cache[base + c * BLOCK + p];
        uvec4 kl = cache[base + LIMB_VECTORS + c * BLOCK + p];
        for (uint q = 0u; q < TILE; q++) {
            uvec4 qh = query[2u * q * HDV + c];
            uvec4 ql = query[(2u * q + 1u) * HDV + c];
            H[q] = dot16(H[q], qh, kh);
            M[q] = dot16(dot16(M[q], qh, kl), ql, kh);
            L[q] = dot16(L[q], ql, kl);
        }
    }

    float keyScale = pow2(int(cache[base + 4u * LIMB_VECTORS + p / 4u][p % 4u]));
    for (uint q = 0u; q < TILE; q++) {
        if (inRun(t, q, from, to)) {
            record(t, q, block, p, ivec3(H[q], M[q], L[q]), keyScale);
        }
    }
    barrier();
    recordMaxima(t, from, to, block, BLOCK);
}

void main() {
    Tile t = tileOf(gl_WorkGroupID.y, gl_WorkGroupID.z);
    uint to;
    for (uint from = t.row; from < min(end, t.row + TILE_ROWS); from = to) {
        to = runEnd(t, from);
        run(t, from, to);
    }
}
