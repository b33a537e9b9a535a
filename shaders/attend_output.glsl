// The end of attention, NUMERICS.md section 8.

// outputBy is out[d] for Total[d], 2^(X - 12) and r.
float outputBy(uvec2 total, float scale, float inverse) {
    precise float y = (toFloat(total) * scale) * inverse;
    return flushed(y);
}

// outputOf is out[d] for Total[d], X and D * 2^-36.
float outputOf(uvec2 total, int top, float denominator) { return outputBy(total, pow2(top - 12), recipOf(denominator)); }
