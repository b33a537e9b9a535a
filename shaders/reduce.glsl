// Reductions over a workgroup of whatever subgroup size. Each ends in a barrier and gives every invocation the result;
// all invocations must call them together.

#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require

shared uvec4 subgroupPartial[128]; // 1,024 invocations in subgroups of 8

uint workgroupMax(uint v) {
    v = subgroupMax(v);
    if (gl_NumSubgroups == 1u) {
        return v;
    }
    if (subgroupElect()) {
        subgroupPartial[gl_SubgroupID].x = v;
    }
    barrier();
    v = 0u;
    for (uint i = gl_SubgroupInvocationID; i < gl_NumSubgroups; i += gl_SubgroupSize) {
        v = max(v, subgroupPartial[i].x);
    }
    v = subgroupMax(v);
    barrier();
    return v;
}

// workgroupAdd sums each component modulo 2^32.
uvec4 workgroupAdd(uvec4 v) {
    v = subgroupAdd(v);
    if (gl_NumSubgroups == 1u) {
        return v;
    }
    if (subgroupElect()) {
        subgroupPartial[gl_SubgroupID] = v;
    }
    barrier();
    v = uvec4(0u);
    for (uint i = gl_SubgroupInvocationID; i < gl_NumSubgroups; i += gl_SubgroupSize) {
        v += subgroupPartial[i];
    }
    v = subgroupAdd(v);
    barrier();
    return v;
}
