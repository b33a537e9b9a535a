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
