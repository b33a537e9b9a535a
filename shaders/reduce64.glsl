// The 64-bit sum of a workgroup. Included after int64.glsl and reduce.glsl.

// workgroupMaxAdd64 sums pairs (int64.glsl), modulo 2^64, by parts of 21 bits, whose sums over 1,024 invocations fit in 32; top
// becomes its maximum.
uvec2 workgroupMaxAdd64(inout uint top, uvec2 v) {
    uvec4 r = workgroupMaxAdd(uvec4(top, v.x & 0x1fffffu, v.x >> 21 | (v.y & 0x3ffu) << 11, v.y >> 10));
    top = r.x;
    return add64(add64(uvec2(r.y, 0u), left64(uvec2(r.z, 0u), 21u)), uvec2(0u, r.w << 10));
}

uvec2 workgroupAdd64(uvec2 v) {
    uint none = 0u;
    return workgroupMaxAdd64(none, v);
}

// workgroupAddSquares sums pairs below 2^50: within a subgroup, of up to 128, two parts hold the sum of as little.
uvec2 workgroupAddSquares(uvec2 v) {
    uint place = beginReduction();
    uvec2 sums = subgroupAdd(uvec2(v.x & 0x1ffffffu, v.x >> 25 | v.y << 7));
    if (subgroupElect()) {
        v = add64(uvec2(sums.x, 0u), left64(uvec2(sums.y, 0u), 25u));
        atomicAdd(reduced[place].y, v.x & 0x1fffffu);
        atomicAdd(reduced[place].z, v.x >> 21 | (v.y & 0x3ffu) << 11);
        atomicAdd(reduced[place].w, v.y >> 10);
    }
    barrier();
    uvec4 r = reduced[place];
    return add64(add64(uvec2(r.y, 0u), left64(uvec2(r.z, 0u), 21u)), uvec2(0u, r.w << 10));
}
