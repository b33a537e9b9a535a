// Units: products of packed int8, four to a word, summed in int32. With DP4A by the device's dot product, with LUT by the
// committed table of products, whose binding the shader defines as PRODUCTS.

#ifdef DP4A
#extension GL_EXT_spirv_intrinsics : require
spirv_instruction(extensions = ["SPV_KHR_integer_dot_product"], capabilities = [6019, 6018], id = 4450)
int packedDot(uint a, uint b, spirv_literal int format);
int dot4(uint a, uint b) { return packedDot(a, b, 0); } // PackedVectorFormat4x8Bit
#endif

#ifdef LUT
layout(std430, set = 0, binding = PRODUCTS) readonly buffer Products { int products[]; }; // pairs of int16 (luts.MulBin)

int product(uint a, uint b) {
    uint i = (a & 0xffu) << 8 | (b & 0xffu);
    return bitfieldExtract(products[i >> 1], int(i & 1u) * 16, 16);
}

int dot4(uint a, uint b) {
    return product(a, b) + product(a >> 8, b >> 8) + product(a >> 16, b >> 16) + product(a >> 24, b >> 24);
}
#endif

// STEPWISE goes before a loop over products that is long enough: code with tables is, unrolled, too long for a compiler.
#extension GL_EXT_control_flow_attributes : require
#ifdef LUT
#define STEPWISE [[dont_unroll]]
#else
#define STEPWISE
#endif

#if defined(DP4A) || defined(LUT)
// dot16 is sum plus sixteen products.
int dot16(int sum, uvec4 a, uvec4 b) {
    sum += dot4(a.x, b.x);
    sum += dot4(a.y, b.y);
    sum += dot4(a.z, b.z);
    return sum + dot4(a.w, b.w);
}
#endif

// packed puts four values, each within int8, into a word.
uint packed(ivec4 v) {
    uvec4 b = uvec4(v) & 0xffu;
    return b.x | b.y << 8 | b.z << 16 | b.w << 24;
}
