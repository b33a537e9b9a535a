// Quantising the row that a workgroup holds in v: word wordIndex(i) of four values in v[i], zero beyond K. It uses what
// quantize.comp declares, and its functions keep and keepInfo for the result.

uint wordIndex(uint i) { return i * gl_WorkGroupSize.x + gl_LocalInvocationID.x; }

ivec4 scaledWord(uint i, float factor) {
    return ivec4(scaledTo(v[i].x, factor), scaledTo(v[i].y, factor), scaledTo(v[i].z, factor), scaledTo(v[i].w, factor));
}

// quantizeRow reports a row that is not finite, and then says no.
bool quantizeRow(uint row) {
    uint top = 0u;
    for (uint i = 0u; i < PER; i++) {
        top = max(top, max(max(absBits(v[i].x), absBits(v[i].y)), max(absBits(v[i].z), absBits(v[i].w))));
    }
    top = workgroupMax(top);
    if (top >= INF_BITS) {
        if (gl_LocalInvocationID.x == 0u) {
            fail(op, row);
        }
        return false;
    }
    int e = rowExponent(top);
    float factor = pow2(-e);
    uint largest = 0u;
    uint sum = 0u;
    for (uint i = 0u; i < PER; i++) {
        ivec4 q = scaledWord(i, factor);
        uvec4 a = uvec4(abs(q)) >> 1;
        largest = max(largest, max(max(a.x, a.y), max(a.z, a.w)));
        sum += a.x + a.y + a.z + a.w;
        if (wordIndex(i) < words) {
            ivec4 hi = (q + 128) >> 8;
            keep(row, 0u, wordIndex(i), packed(hi));
            keep(row, 1u, wordIndex(i), packed(q - (hi << 8)));
        }
    }
    largest = workgroupMax(largest);
    sum = workgroupAdd(uvec4(sum, 0u, 0u, 0u)).x;
    bool wide = isWide(largest, sum, K);
    if (wide) {
        e -= 8;
        factor = pow2(-e);
        for (uint i = 0u; i < PER; i++) {
            ivec4 q = clamp(scaledWord(i, factor), -MAX_THREE_LIMBS, MAX_THREE_LIMBS);
            if (wordIndex(i) < words) {
                ivec4 h2 = (q + 32896) >> 16;
                ivec4 r = q - (h2 << 16);
                ivec4 h1 = (r + 128) >> 8;
                keep(row, 0u, wordIndex(i), packed(h2));
                keep(row, 1u, wordIndex(i), packed(h1));
                keep(row, 2u, wordIndex(i), packed(r - (h1 << 8)));
            }
        }
    }
    if (gl_LocalInvocationID.x == 0u) {
        keepInfo(row, e, wide);
    }
    return true;
}
