// The parts of the context for each of which the largest score is kept, for attend.glsl: PART blocks, aligned at multiples of as
// many of the absolute position.

uint firstPart(int pos) { return firstBlock(pos) / PART; }

// partCount is the number of parts in which the row at pos sees something.
uint partCount(int pos) { return uint(pos) / BLOCK / PART - firstPart(pos) + 1u; }

// maxParts is what a row and head has room for.
uint maxParts() { return (stride / BLOCK + PART - 2u) / PART + 1u; }
