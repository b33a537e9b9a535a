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

// fixed36Parts is fixed36(p), 0 <= p <= 1, as x * 2^20 + y of integers |x| <= 2^16 and |y| <= 2^19: sums of 32 are exact. 1.5 * 2^23
// added and taken off again leaves what is less than 2^22 rounded to an integer.
vec2 fixed36Parts(float p) {
    precise float v = p * 68719476736.0;
    precise float x = (p * 65536.0 + 12582912.0) - 12582912.0;
    precise float rest = v - x * 1048576.0; // exact
    precise float y = (rest + 12582912.0) - 12582912.0;
    return vec2(x, y);
}

// fromFixed36 is f32(d) * 2^-36.
float fromFixed36(uvec2 d) {
    precise float y = toFloat(d) * 1.4551915228366852e-11;
    return y;
}
