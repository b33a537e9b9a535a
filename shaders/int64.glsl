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

// toFloat is the signed v rounded to the nearest float32, ties to even. A conversion rounds the first 32 of its bits, whose last says
// whether any of those after them is set.
float toFloat(uvec2 v) {
    bool negative = int(v.y) < 0;
    if (negative) {
        v = add64(~v, uvec2(1u, 0u));
    }
    uint after = uint(findMSB(v.y) + 1); // bits
    uint rest = v.x & ((1u << after) - 1u);
    uint first = after == 0u ? v.x : v.x >> after | v.y << (32u - after);
    precise float y = float(rest == 0u ? first : first | 1u) * pow2(int(after));
    return negative ? -y : y;
}
