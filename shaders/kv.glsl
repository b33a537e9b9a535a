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
