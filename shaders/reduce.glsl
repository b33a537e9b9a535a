// Reductions over a workgroup of whatever subgroup size. Each gives every invocation the result and has a barrier, which what
// they wrote to shared memory before has passed too; all invocations must call them together.

#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require

// What subgroups have found, by three reductions in turn: while one goes on nobody is before the one before it, so that the place
// of the one after it, which was that of the second before, can be cleared.
shared uvec4 reduced[3];
uint reductions = 0u;

// clearReductions, before a barrier that all pass before the first reduction, saves that the one of its own.
void clearReductions() {
    if (gl_LocalInvocationID.x == 0u) {
        reduced[0] = uvec4(0u);
    }
    reductions = 3u;
}

// beginReduction is the place of the next one, cleared.
uint beginReduction() {
    uint place = reductions % 3u;
    if (gl_LocalInvocationID.x == 0u) {
        if (reductions == 0u) {
            reduced[0] = uvec4(0u);
        }
        reduced[(place + 1u) % 3u] = uvec4(0u);
    }
    if (reductions == 0u) {
        barrier();
    }
    reductions++;
    return place;
}

uint workgroupMax(uint v) {
    uint place = beginReduction();
    v = subgroupMax(v);
    if (subgroupElect()) {
        atomicMax(reduced[place].x, v);
    }
    barrier();
    return reduced[place].x;
}

// workgroupAdd is the sum modulo 2^32.
uint workgroupAdd(uint v) {
    uint place = beginReduction();
    v = subgroupAdd(v);
    if (subgroupElect()) {
        atomicAdd(reduced[place].x, v);
    }
    barrier();
    return reduced[place].x;
}

// workgroupMaxAdd is the maximum of the first component and the sum, modulo 2^32, of each of the others.
uvec4 workgroupMaxAdd(uvec4 v) {
    uint place = beginReduction();
    v = uvec4(subgroupMax(v.x), subgroupAdd(v.yzw));
    if (subgroupElect()) {
        atomicMax(reduced[place].x, v.x);
        atomicAdd(reduced[place].y, v.y);
        atomicAdd(reduced[place].z, v.z);
        atomicAdd(reduced[place].w, v.w);
    }
    barrier();
    return reduced[place];
}
