// Exact 64-bit integers as pairs of 32-bit words, for devices without them: x is the low word, y the high one.

// widened is v with its sign.
uvec2 widened(int v) { return uvec2(uint(v), uint(v >> 31)); }

uvec2 add64(uvec2 a, uvec2 b) {
    uint carry;
    uint lo = uaddCarry(a.x, b.x, carry);
    return uvec2(lo, a.y + b.y + carry);
}

// square64 is v * v.
uvec2 square64(int v) {
    uvec2 r;
    uint a = uint(abs(v));
    umulExtended(a, a, r.y, r.x);
    return r;
}

// left64 is v << n, 0 <= n < 32.
uvec2 left64(uvec2 v, uint n) { return n == 0u ? v : uvec2(v.x << n, v.y << n | v.x >> (32u - n)); }

// right64 is v >> n with the sign, 0 <= n < 64.
uvec2 right64(uvec2 v, uint n) {
    uint sign = uint(int(v.y) >> 31);
    if (n >= 32u) {
        v = uvec2(v.y, sign);
        n -= 32u;
    }
    return n == 0u ? v : uvec2(v.x >> n | v.y << (32u - n), uint(int(v.y) >> n));
}

// shift64 is the shift of NUMERICS.md section 8: v * 2^n for n < 32, rounded to nearest with halves up for n < 0, and 0 below
// -62.
uvec2 shift64(uvec2 v, int n) {
    if (n >= 0) {
        return left64(v, uint(n));
    }
    if (n < -62) {
        return uvec2(0u);
    }
    uint r = uint(-n);
    uvec2 half64 = r > 32u ? uvec2(0u, 1u << (r - 33u)) : uvec2(1u << (r - 1u), 0u);
    return right64(add64(v, half64), r);
}

// toFloat is the signed v rounded to the nearest float32, ties to even, in integers.
float toFloat(uvec2 v) {
    uint sign = v.y & 0x80000000u;
    if (sign != 0u) {
        v = add64(~v, uvec2(1u, 0u));
    }
    if ((v.x | v.y) == 0u) {
        return 0.0;
    }
    // Justified left, the first 24 bits are the significand and the rest decides the rounding.
    int top = v.y != 0u ? 32 + findMSB(v.y) : findMSB(v.x);
    uint n = uint(63 - top);
    v = n >= 32u ? uvec2(0u, v.x << (n - 32u)) : left64(v, n);
    uint kept = v.y >> 8;
    uint rest = v.y & 0xffu;
    if (rest > 0x80u || (rest == 0x80u && (v.x != 0u || (kept & 1u) != 0u))) {
        kept++;
    }
    // The leading bit of the significand adds 1 to the exponent, and a carry out of it another, as it should.
    return uintBitsToFloat((uint(top + 126) << 23) + kept | sign);
}
