// Scores to weights, NUMERICS.md section 8, for attend.glsl. Includers have WEIGH_THREADS invocations, and numerics.glsl,
// int64.glsl and fixed.glsl. With SHUFFLE the subgroups of the device shuffle, which is faster.

#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_basic : require
#ifdef SHUFFLE
#extension GL_KHR_shader_subgroup_shuffle : require
#endif

shared uint weighed[WEIGH_THREADS]; // where a subgroup is less than a group

// Weights of four positions, as limbs, packed; count is the number of limbs of their block, 0 if all its weights are zero.
struct Weights {
    uint limbs[3];
    uint count;
    int exponent; // e_b
    int top;      // c_b
    uvec2 sum;    // part of D
};

// groupMax and groupAdd are over width invocations, a power of two, and all invocations call them together.
uint groupMax(uint v, uint width) {
    uint r = 0u;
    if (gl_SubgroupSize >= width) {
#ifdef SHUFFLE
        for (uint i = 1u; i < width; i *= 2u) {
            v = max(v, subgroupShuffleXor(v, i));
        }
        return v;
#else
        for (uint i = 0u; i < gl_SubgroupSize / width; i++) {
            bool mine = gl_SubgroupInvocationID / width == i;
            uint top = subgroupMax(mine ? v : 0u);
            r = mine ? top : r;
        }
        return r;
#endif
    }
    uint tid = gl_LocalInvocationID.x;
    weighed[tid] = v;
    barrier();
    for (uint i = 0u; i < width; i++) {
        r = max(r, weighed[tid / width * width + i]);
    }
    barrier();
    return r;
}

uint groupAdd(uint v, uint width) {
    uint r = 0u;
    if (gl_SubgroupSize >= width) {
#ifdef SHUFFLE
        for (uint i = 1u; i < width; i *= 2u) {
            v += subgroupShuffleXor(v, i);
        }
        return v;
#else
        for (uint i = 0u; i < gl_SubgroupSize / width; i++) {
            bool mine = gl_SubgroupInvocationID / width == i;
            uint sum = subgroupAdd(mine ? v : 0u);
            r = mine ? sum : r;
        }
        return r;
#endif
    }
    uint tid = gl_LocalInvocationID.x;
    weighed[tid] = v;
    barrier();
    for (uint i = 0u; i < width; i++) {
        r += weighed[tid / width * width + i];
    }
    barrier();
    return r;
}

// bytes packs bits [0, 8) and [16, 24) of a and b in turn.
uint bytes(uint a, uint b) { return (a & 0x00ff00ffu) | (b & 0x00ff00ffu) << 8; }

// significand is RNE(x * factor), which is below 2^23, for x >= 0: what the fraction of a float of 2^23 and more is.
uint significand(float x, float factor) {
    precise float y = x * factor + 8388608.0;
    return floatBitsToUint(y) & 0x7fffffu;
}

// weigh takes four positions from j on, a multiple of 4, with scores s and value exponents e; [lo, hi) are visible and m is
// the largest score of all. All invocations call it together, sixteen in a row for a block; a block with nothing
// visible has count 0.
Weights weigh(vec4 s, ivec4 valueExp, uint j, uint lo, uint hi, float m) {
    uvec4 w = uvec4(0u);  // bits of the weights, which are not negative
    precise vec2 sum = vec2(0.0); // of RNE(p * 2^36), in units of 2^20 and 1
    uint top = 0u;
    if (j + 3u >= lo && j < hi) {
        [[unroll]] for (uint i = 0u; i < 4u; i++) {
            precise float below = s[i] - m;
            float p = expOf(below);
            if (j + i >= lo && j + i < hi && p >= 9.094947017729282e-13) { // 2^-40
                sum += fixed36Parts(p);
                w[i] = floatBitsToUint(p) + (uint(valueExp[i]) << 23); // times a power of two
                top = max(top, w[i]);
            }
        }
    }
    top = groupMax(top, 16u);
    int e = rowExponent(top);

    float factor = pow2(-e);
    uvec4 q;
    uint total = 0u;
    [[unroll]] for (uint i = 0u; i < 4u; i++) {
        q[i] = significand(uintBitsToFloat(w[i]), factor);
        total += q[i] >> 1;
    }
    total = groupAdd(total, 16u);
    uint largest = significand(uintBitsToFloat(top), factor) >> 1;

    Weights r;
    uint upper = uint(sum.x);
    r.sum = add64(widened(int(sum.y)), uvec2(upper << 20, upper >> 12));
    r.top = e;
    r.exponent = e;
    r.count = 0u;
    r.limbs[0] = r.limbs[1] = r.limbs[2] = 0u;
    if (top == 0u) {
        return r;
    }
    uint block = j / BLOCK;
    uint visible = min((block + 1u) * BLOCK, hi) - max(block * BLOCK, lo);
    if (isWide(largest, total, visible)) {
        [[unroll]] for (uint i = 0u; i < 4u; i++) {
            q[i] = min(significand(uintBitsToFloat(w[i]), pow2(8 - e)), uint(MAX_THREE_LIMBS));
        }
        uvec4 middle = (q + 128u) >> 8;
        uvec4 high = (q + 32896u) >> 16;
        r.limbs[0] = bytes(high.x | high.z << 16, high.y | high.w << 16);
        r.limbs[1] = bytes(bitfieldInsert(middle.x, middle.z, 16, 16), bitfieldInsert(middle.y, middle.w, 16, 16));
        r.limbs[2] = bytes(bitfieldInsert(q.x, q.z, 16, 16), bitfieldInsert(q.y, q.w, 16, 16));
        r.count = 3u;
        r.exponent = e - 8;
    } else {
        uint even = q.x | q.z << 16;
        uint odd = q.y | q.w << 16;
        r.limbs[0] = bytes((even + 0x00800080u) >> 8, (odd + 0x00800080u) >> 8);
        r.limbs[1] = bytes(even, odd);
        r.count = 2u;
    }
    return r;
}
