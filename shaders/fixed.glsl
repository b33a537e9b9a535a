// fixed36 is RNE(p * 2^36) of 0 <= p < 16, a pair (int64.glsl). Included after numerics.glsl.
uvec2 fixed36(float p) {
    precise float v = p * 68719476736.0;
    uint bits = floatBitsToUint(v);
    int e = exponentOf(bits);
    if (e < 31) {
        return uvec2(uint(roundEven(v)), 0u);
    }
    return left64(uvec2((bits & 0x7fffffu) | 0x800000u, 0u), uint(e - 23));
}

// fromFixed36 is f32(d) * 2^-36.
float fromFixed36(uvec2 d) {
    precise float y = toFloat(d) * 1.4551915228366852e-11;
    return y;
}
