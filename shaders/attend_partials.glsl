// X and D of a row and head from the partials of its chunks (attend_weights.comp).

layout(std430, set = 0, binding = 5) readonly buffer Partials { uvec4 partials[]; };

int topExponent(uint n, int pos) {
    uint x = 0u;
    for (uint i = 0u; i < chunkCount(pos); i++) {
        x = max(x, partials[n * maxChunks() + i].z);
    }
    return int(x) + ZERO_EXPONENT;
}

// denominatorOf is D * 2^-36.
float denominatorOf(uint n, int pos) {
    uvec2 d = uvec2(0u);
    for (uint i = 0u; i < chunkCount(pos); i++) {
        d = add64(d, partials[n * maxChunks() + i].xy);
    }
    return fromFixed36(d);
}
