// Reductions over a workgroup of whatever subgroup size. Each gives every invocation the result and has one barrier, which
// what they wrote to shared memory before has passed too; all invocations must call them together.

#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require

// Reductions take the two halves in turn: who begins one has left the one before the last behind, and so has everyone, since
// all have met in the last.
shared uvec4 subgroupPartial[2][128]; // 1,024 invocations in subgroups of 8
uint subgroupTurn = 0u;

uint workgroupMax(uint v) {
    v = subgroupMax(v);
    if (gl_NumSubgroups == 1u) {
        return v;
    }
    uint turn = subgroupTurn;
    subgroupTurn ^= 1u;
    if (subgroupElect()) {
        subgroupPartial[turn][gl_SubgroupID].x = v;
    }
    barrier();
    v = 0u;
    for (uint i = gl_SubgroupInvocationID; i < gl_NumSubgroups; i += gl_SubgroupSize) {
        v = max(v, subgroupPartial[turn][i].x);
    }
    return subgroupMax(v);
}

// workgroupAdd sums each component modulo 2^32.
uvec4 workgroupAdd(uvec4 v) {
    v = subgroupAdd(v);
    if (gl_NumSubgroups == 1u) {
        return v;
    }
    uint turn = subgroupTurn;
    subgroupTurn ^= 1u;
    if (subgroupElect()) {
        subgroupPartial[turn][gl_SubgroupID] = v;
    }
    barrier();
    v = uvec4(0u);
    for (uint i = gl_SubgroupInvocationID; i < gl_NumSubgroups; i += gl_SubgroupSize) {
        v += subgroupPartial[turn][i];
    }
    return subgroupAdd(v);
}

// workgroupMaxAdd is the maximum of the first and the sum, modulo 2^32, of the second.
uvec2 workgroupMaxAdd(uvec2 v) {
    v = uvec2(subgroupMax(v.x), subgroupAdd(v.y));
    if (gl_NumSubgroups == 1u) {
        return v;
    }
    uint turn = subgroupTurn;
    subgroupTurn ^= 1u;
    if (subgroupElect()) {
        subgroupPartial[turn][gl_SubgroupID].xy = v;
    }
    barrier();
    v = uvec2(0u);
    for (uint i = gl_SubgroupInvocationID; i < gl_NumSubgroups; i += gl_SubgroupSize) {
        uvec2 w = subgroupPartial[turn][i].xy;
        v = uvec2(max(v.x, w.x), v.y + w.y);
    }
    return uvec2(subgroupMax(v.x), subgroupAdd(v.y));
}
