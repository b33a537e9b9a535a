// The norm of the values that a workgroup holds in v, by words.glsl, NUMERICS.md section 5: y = norm(x) * w + b. Includers have
// the specialisation constants LAYER_NORM and NORM_BIAS, the push constants normOp, eps and invK, and int64.glsl and reduce64.glsl.

// The weights and biases of the words, to be loaded together with them: they come from further away.
vec4 normWeight[PER];
vec4 normBias[PER];

uint largest() {
    uint top = 0u;
    for (uint i = 0u; i < PER; i++) {
        for (uint j = 0u; j < 4u; j++) {
            top = max(top, absBits(v[i][j])); // 0 beyond K
        }
    }
    return workgroupMax(top);
}

int normExponent(uint top) { return top == 0u ? 0 : max(exponentOf(top), -60); }

// normalize reports a row that is not finite, and goes on: where some invocations might return, a compiler keeps account of those
// that are left in each reduction that follows.
void normalize(uint row) {
    uint top = largest();
    bool finite = top < INF_BITS;

    if (LAYER_NORM) {
        int e = normExponent(top);
        float scale = pow2(20 - e);
        int total = 0; // |g| <= 2^21, so up to 1,023 of them fit
        for (uint i = 0u; i < PER; i++) {
            for (uint j = 0u; j < 4u; j++) {
                total += scaledTo(v[i][j], scale);
            }
        }
        precise float mu = (toFloat(workgroupAdd64(widened(total))) * pow2(e - 20)) * invK;
        for (uint i = 0u; i < PER; i++) {
            for (uint j = 0u; j < 4u; j++) {
                precise float d = v[i][j] - mu;
                v[i][j] = column(i, j) < K ? flushed(d) : 0.0;
            }
        }
        top = largest();
        finite = finite && top < INF_BITS;
    }

    int e = normExponent(top);
    float scale = pow2(20 - e);
    uvec2 squares = uvec2(0u);
    for (uint i = 0u; i < PER; i++) {
        for (uint j = 0u; j < 4u; j++) {
            squares = add64(squares, square64(scaledSmall(v[i][j], scale)));
        }
    }
    float p = pow2(e - 20);
    precise float ms = ((toFloat(workgroupAddSquares(squares)) * p) * p) * invK;
    precise float d = ms + eps;
    if (gl_LocalInvocationID.x == 0u && (!finite || floatBitsToUint(d) >= INF_BITS)) {
        fail(normOp, row);
    }
    float r = rsqrtOf(d);
    for (uint i = 0u; i < PER; i++) {
        for (uint j = 0u; j < 4u; j++) {
            precise float n = v[i][j] * r;
            precise float n2 = flushed(n) * normWeight[i][j];
            if (NORM_BIAS) {
                n2 = n2 + normBias[i][j];
            }
            v[i][j] = flushed(n2); // 0 beyond K, where all are
        }
    }
}
