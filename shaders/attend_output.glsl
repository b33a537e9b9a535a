// The end of attention, NUMERICS.md section 8.

// outputOf is out[d] for Total[d], X and D * 2^-36.
float outputOf(uvec2 total, int top, float denominator) {
    precise float y = (toFloat(total) * pow2(top - 12)) * recipOf(denominator);
    return flushed(y);
}
