// Scores to weights, NUMERICS.md section 8, for attend.glsl. Includers have WEIGH_THREADS invocations, and numerics.glsl,
// int64.glsl, fixed.glsl and dot.glsl.

// Of the four positions of each invocation.
shared uint weightTops[WEIGH_THREADS];
shared uvec2 weightSizes[WEIGH_THREADS]; // largest and sum of |q| >> 1

// Weights of four positions, as limbs, packed; count is the number of limbs of their block, 0 if all its weights are zero.
struct Weights {
    uint limbs[3];
    uint count;
    int exponent; // e_b
    int top;      // c_b
    uvec2 sum;    // part of D
};

// weigh takes four positions from j on, a multiple of 4, with scores s and value exponents e; [lo, hi) are visible and m is
// the largest score of all. All invocations call it together, sixteen in a row for a block; a block with nothing
// visible has count 0.
Weights weigh(vec4 s, ivec4 valueExp, uint j, uint lo, uint hi, float m) {
    uint tid = gl_LocalInvocationID.x;
    uint first16 = tid & ~15u;
    Weights r;
    r.sum = uvec2(0u);
    vec4 w = vec4(0.0);
    uint top = 0u;
    for (uint i = 0u; i < 4u; i++) {
        if (j + i >= lo && j + i < hi) {
            precise float below = s[i] - m;
            float p = expOf(below);
            if (p >= 9.094947017729282e-13) { // 2^-40
                r.sum = add64(r.sum, fixed36(p));
                precise float v = p * pow2(valueExp[i]);
                w[i] = v;
                top = max(top, floatBitsToUint(v));
            }
        }
    }
    weightTops[tid] = top;
    barrier();
    for (uint i = 0u; i < 16u; i++) {
        top = max(top, weightTops[first16 + i]);
    }
    int e = rowExponent(top);

    ivec4 q = ivec4(0);
    uint largest = 0u, total = 0u;
    for (uint i = 0u; i < 4u; i++) {
        q[i] = scaledTo(w[i], pow2(-e));
        uint a = uint(q[i]) >> 1;
        largest = max(largest, a);
        total += a;
    }
    weightSizes[tid] = uvec2(largest, total);
    barrier();
    total = 0u;
    for (uint i = 0u; i < 16u; i++) {
        largest = max(largest, weightSizes[first16 + i].x);
        total += weightSizes[first16 + i].y;
    }
    r.top = e;
    r.exponent = e;
    r.count = 0u;
    r.limbs[0] = r.limbs[1] = r.limbs[2] = 0u;
    if (top == 0u) {
        return r;
    }
    uint block = j / BLOCK;
    uint visible = min((block + 1u) * BLOCK, hi) - max(block * BLOCK, lo);
    ivec4 a, b, c;
    if (isWide(largest, total, visible)) {
        for (uint i = 0u; i < 4u; i++) {
            ivec3 l = limbs3(min(scaledTo(w[i], pow2(8 - e)), MAX_THREE_LIMBS));
            a[i] = l.x;
            b[i] = l.y;
            c[i] = l.z;
        }
        r.limbs[2] = packed(c);
        r.count = 3u;
        r.exponent = e - 8;
    } else {
        for (uint i = 0u; i < 4u; i++) {
            ivec2 l = limbs2(q[i]);
            a[i] = l.x;
            b[i] = l.y;
        }
        r.count = 2u;
    }
    r.limbs[0] = packed(a);
    r.limbs[1] = packed(b);
    return r;
}
