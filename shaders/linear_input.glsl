// What the rows of the input of a matrix have besides their limbs: their buffer (limbs.glsl) as int info[]. Includers have rows, of
// the batch, and KV, vectors of 16 values of a row.

int exponentOfRow(uint row) { return info[12u * rows * KV + 2u * row]; }
bool wideRow(uint row) { return info[12u * rows * KV + 2u * row + 1u] != 0; }
