// The 64-bit sum of a workgroup. Included after int64.glsl and reduce.glsl.

// workgroupAdd64 sums pairs (int64.glsl), modulo 2^64: by quarters of 16 bits, whose sums fit in 32.
uvec2 workgroupAdd64(uvec2 v) {
    uvec4 q = workgroupAdd(uvec4(v.x & 0xffffu, v.x >> 16, v.y & 0xffffu, v.y >> 16));
    uvec2 r = uvec2(q.x, 0u);
    r = add64(r, left64(uvec2(q.y, 0u), 16u));
    r = add64(r, uvec2(0u, q.z));
    return add64(r, uvec2(0u, q.w << 16));
}
