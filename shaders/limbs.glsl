// A buffer of quantised rows: three planes of [rows][K4] words, K4 = K padded to 64 values and four values to a word, then for
// each row {exponent, wide}. The planes are (hi, lo, unused) for a row of two limbs and (h2, h1, h0) for a wide one; the
// third is undefined unless a row is wide. Padding is zero.

uint limbPlane(uint plane, uint rows, uint words) { return plane * rows * words; }

// limbInfo is where the exponent of a row lies, in words; the wide flag follows.
uint limbInfo(uint row, uint rows, uint words) { return 3u * rows * words + 2u * row; }

#ifdef KEEP_LIMBS // in the buffer limbs, for quantize.glsl
// keep stores a word of a plane.
void keep(uint row, uint plane, uint word, uint v) { limbs[limbPlane(plane, rows, words) + row * words + word] = v; }

void keepInfo(uint row, int exponent, bool wide) {
    uint at = limbInfo(row, rows, words);
    if (gl_LocalInvocationID.x == 0u) {
        limbs[at] = uint(exponent);
        limbs[at + 1u] = wide ? 1u : 0u;
    }
}
#endif
