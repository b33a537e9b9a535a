// Quantising the row that a workgroup holds in v, by words.glsl. Includers have numerics.glsl, reduce.glsl and dot.glsl, the
// push constants words, of a row of a plane, and op, and the functions keep and keepInfo for the result.

// scaledWord is a word as integers, scaledTwo the same where they fit in two limbs.
ivec4 scaledTwo(uint i, float factor) {
    return ivec4(scaledSmall(v[i].x, factor), scaledSmall(v[i].y, factor), scaledSmall(v[i].z, factor), scaledSmall(v[i].w, factor));
}

ivec4 scaledWord(uint i, float factor) {
    return ivec4(scaledTo(v[i].x, factor), scaledTo(v[i].y, factor), scaledTo(v[i].z, factor), scaledTo(v[i].w, factor));
}

// lowBytes packs the last bytes of four values, which may be any.
uint lowBytes(uvec4 q) {
    uint low = bitfieldInsert(q.x, q.y, 8, 8);
    return bitfieldInsert(low, bitfieldInsert(q.z, q.w, 8, 8), 16, 16);
}

// quantizeRow reports a row that is not finite, and goes on (norm.glsl). A barrier follows what it keeps.
void quantizeRow(uint row) {
    uint top = 0u;
    for (uint i = 0u; i < PER; i++) {
        top = max(top, max(max(absBits(v[i].x), absBits(v[i].y)), max(absBits(v[i].z), absBits(v[i].w))));
    }
    top = workgroupMax(top);
    if (gl_LocalInvocationID.x == 0u && top >= INF_BITS) {
        fail(op, row);
    }
    int e = rowExponent(top);
    float factor = pow2(-e);
    uint sum = 0u; // of |q| >> 1
    for (uint i = 0u; i < PER; i++) {
        ivec4 q = scaledTwo(i, factor);
        uvec4 a = uvec4(abs(q)) >> 1;
        sum += a.x + a.y + a.z + a.w;
        if (wordIndex(i) < words) {
            keep(row, 0u, wordIndex(i), lowBytes(uvec4(q + 128) >> 8));
            keep(row, 1u, wordIndex(i), lowBytes(uvec4(q)));
        }
    }
    // Rounding keeps the order: the largest |q| is that of the largest magnitude.
    bool wide = isWide(uint(scaledSmall(uintBitsToFloat(top), factor)) >> 1, workgroupAdd(sum), K);
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
        barrier();
    }
    keepInfo(row, e, wide);
}
