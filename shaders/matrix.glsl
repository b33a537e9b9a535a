// Products of 16 x 32 by 32 x 16 int8, summed in int32, over rows of bytes in the shared array of uvec4 that the includer
// defines as MATRICES: by cooperative matrices, or, without COOPERATIVE, by the invocations of a subgroup, which share out
// the 256 sums. Includers have dot.glsl and a constant SUBGROUP, the size of every subgroup, and put BY_MATRIX before loops
// over matrices and over the sums of one.

#ifdef COOPERATIVE
#extension GL_EXT_shader_explicit_arithmetic_types_int8 : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_NV_cooperative_matrix : require
#extension GL_NV_integer_cooperative_matrix : require

#define SUMS icoopmatNV<32, gl_ScopeSubgroup, 16, 16>

#define BY_MATRIX [[unroll]]

SUMS noSums() { return SUMS(0); }

#define LEFT icoopmatNV<8, gl_ScopeSubgroup, 16, 32>
#define RIGHT icoopmatNV<8, gl_ScopeSubgroup, 32, 16>

// left and right are 16 rows, which begin at vector at and are pitch vectors apart, as the factors of a product.
LEFT left(uint at, uint pitch) {
    LEFT a;
    coopMatLoadNV(a, MATRICES, at, pitch, false);
    return a;
}

RIGHT right(uint at, uint pitch) {
    RIGHT b;
    coopMatLoadNV(b, MATRICES, at, pitch, true);
    return b;
}

SUMS plusProduct(SUMS sums, LEFT a, RIGHT b) { return coopMatMulAddNV(a, b, sums); }

SUMS times256(SUMS sums) { return sums * 256; }

// store puts the sums, a row for each row of a, at vector at of MATRICES, rows pitch vectors apart.
void store(SUMS sums, uint at, uint pitch) { coopMatStoreNV(sums, MATRICES, at, pitch, false); }
#else
#define BY_MATRIX [[dont_unroll]]

struct SUMS {
    int sums[32]; // of which 256 / SUBGROUP are used
};

SUMS noSums() {
    SUMS s;
    [[dont_unroll]] for (uint i = 0u; i < 256u / SUBGROUP; i++) {
        s.sums[i] = 0;
    }
    return s;
}

struct ROWS16 {
    uint at, pitch;
};
#define LEFT ROWS16
#define RIGHT ROWS16

LEFT left(uint at, uint pitch) { return ROWS16(at, pitch); }

RIGHT right(uint at, uint pitch) { return ROWS16(at, pitch); }

SUMS plusProduct(SUMS s, LEFT a, RIGHT b) {
    [[dont_unroll]] for (uint i = 0u; i < 256u / SUBGROUP; i++) {
        uint e = i * SUBGROUP + gl_SubgroupInvocationID;
        for (uint v = 0u; v < 2u; v++) {
            s.sums[i] = dot16(s.sums[i], MATRICES[a.at + e / 16u * a.pitch + v], MATRICES[b.at + e % 16u * b.pitch + v]);
        }
    }
    return s;
}

SUMS times256(SUMS s) {
    [[dont_unroll]] for (uint i = 0u; i < 256u / SUBGROUP; i++) {
        s.sums[i] *= 256;
    }
    return s;
}

void store(SUMS s, uint at, uint pitch) {
    [[dont_unroll]] for (uint i = 0u; i < 256u / SUBGROUP; i++) {
        uint e = i * SUBGROUP + gl_SubgroupInvocationID;
        MATRICES[at + e / 16u * pitch + e % 16u / 4u][e % 4u] = uint(s.sums[i]);
    }
}
#endif

// multiplied is sums plus the product of rows of a, which begin at vector a and are pitch vectors apart, and the same of b.
SUMS multiplied(SUMS sums, uint a, uint pitchA, uint b, uint pitchB) { return plusProduct(sums, left(a, pitchA), right(b, pitchB)); }
