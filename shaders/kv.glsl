// The KV cache of one layer: blocks of 64 positions, [slots][kvHeads][blocks], HDP being the head dimension padded to 16:
//
//   K high limbs, K low limbs: each [HDP/16][64 positions][16 bytes]
//   V high limbs, V low limbs: each [64/16][HDP channels][16 bytes, a position each]
//   exponents of K, then of V: each [64] int
//
// A position never written is multiplied by nothing but zero.

layout(constant_id = 1) const uint HD = 16u; // head dimension
const uint HDV = (HD + 15u) / 16u;           // in 16-byte vectors
const uint HDP = HDV * 16u;
const uint BLOCK = 64u;
const uint LIMB_VECTORS = BLOCK * HDV;                  // one limb of K or V of a block, in uvec4
const uint BLOCK_VECTORS = 4u * LIMB_VECTORS + BLOCK / 2u; // a block of the cache, in uvec4

// Where position p of a block that begins at word block has word w, four channels, of the high limb of its key, the word that
// holds the high limb of a channel of its value in byte p % 4, and an exponent. Low limbs lie 4 * LIMB_VECTORS words after.
uint keyWord(uint block, uint w, uint p) { return block + (w / 4u * BLOCK + p) * 4u + w % 4u; }
uint valueWord(uint block, uint channel, uint p) { return block + 8u * LIMB_VECTORS + (p / 16u * HDP + channel) * 4u + p % 16u / 4u; }
uint exponentWord(uint block, bool value, uint p) { return block + 16u * LIMB_VECTORS + (value ? BLOCK : 0u) + p; }
