// Products of 16 x 32 by 32 x 16 int8, summed in int32, over rows of bytes in the shared array of uvec4 that the includer
// defines as MATRICES: by cooperative matrices, or, without COOPERATIVE, by the invocations of a subgroup, which share out
// the 256 sums. Includers have dot.glsl and a constant SUBGROUP, the size of every subgroup, 32 for cooperative matrices. They
// put BY_MATRIX before loops over matrices.
//
// Each invocation has MATRIX_SHARE of the sums, which ones is the device's affair: rowValues gives what belongs to the row
// of each, and store puts them where others can read them. EACH_SUM(f) is the statements f(i) for each.

#ifdef COOPERATIVE
#extension GL_EXT_shader_explicit_arithmetic_types_int8 : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_NV_cooperative_matrix : require
#extension GL_NV_integer_cooperative_matrix : require

#define LEFT icoopmatNV<8, gl_ScopeSubgroup, 16, 32>
#define RIGHT icoopmatNV<8, gl_ScopeSubgroup, 32, 16>
#define SUMS icoopmatNV<32, gl_ScopeSubgroup, 16, 16>

#define BY_MATRIX [[unroll]]
#define SUM(s, i) s[i]

// Written out, since arrays that a loop indexes may end up in memory.
const uint MATRIX_SHARE = 8u;
#define EACH_SUM(f) f(0u) f(1u) f(2u) f(3u) f(4u) f(5u) f(6u) f(7u)

SUMS noSums() { return SUMS(0); }

// left is the matrix whose rows, of two vectors, begin at vector at and are pitch vectors apart; right the same of columns.
LEFT left(uint at, uint pitch) {
    LEFT m;
    coopMatLoadNV(m, MATRICES, at, pitch, false);
    return m;
}

RIGHT right(uint at, uint pitch) {
    RIGHT m;
    coopMatLoadNV(m, MATRICES, at, pitch, true);
    return m;
}

// plusProduct is sums plus the product of a and b.
SUMS plusProduct(SUMS sums, LEFT a, RIGHT b) { return coopMatMulAddNV(a, b, sums); }

// rowValues has in each row one of the 16 words from vector at on.
SUMS rowValues(uint at) {
    SUMS s;
    coopMatLoadNV(s, MATRICES, at, 0u, true);
    return s;
}

// store puts the sums at vector at, rows pitch vectors apart.
void store(SUMS sums, uint at, uint pitch) { coopMatStoreNV(sums, MATRICES, at, pitch, false); }
#else
#define BY_MATRIX [[dont_unroll]]
#define SUM(s, i) s.sums[i]

const uint MATRIX_SHARE = 256u / SUBGROUP;
#define EACH_SUM(f) [[dont_unroll]] for (uint each = 0u; each < MATRIX_SHARE; each++) { f(each) }

// Matrices are where they lie; sums are those with the numbers sumIndex(0), sumIndex(1), ...
struct LEFT {
    uint at;
    uint pitch;
};
#define RIGHT LEFT
struct SUMS {
    int sums[32]; // of which MATRIX_SHARE are used
};

uint sumIndex(uint i) { return i * SUBGROUP + gl_SubgroupInvocationID; }

SUMS noSums() {
    SUMS s;
    [[dont_unroll]] for (uint i = 0u; i < MATRIX_SHARE; i++) {
        s.sums[i] = 0;
    }
    return s;
}

LEFT left(uint at, uint pitch) { return LEFT(at, pitch); }

RIGHT right(uint at, uint pitch) { return RIGHT(at, pitch); }

SUMS plusProduct(SUMS s, LEFT a, RIGHT b) {
    [[dont_unroll]] for (uint i = 0u; i < MATRIX_SHARE; i++) {
        uint e = sumIndex(i);
        for (uint v = 0u; v < 2u; v++) {
            s.sums[i] = dot16(s.sums[i], MATRICES[a.at + e / 16u * a.pitch + v], MATRICES[b.at + e % 16u * b.pitch + v]);
        }
    }
    return s;
}

SUMS rowValues(uint at) {
    SUMS s;
    [[dont_unroll]] for (uint i = 0u; i < MATRIX_SHARE; i++) {
        uint row = sumIndex(i) / 16u;
        s.sums[i] = int(MATRICES[at + row / 4u][row % 4u]);
    }
    return s;
}

void store(SUMS s, uint at, uint pitch) {
    [[dont_unroll]] for (uint i = 0u; i < MATRIX_SHARE; i++) {
        uint e = sumIndex(i);
        MATRICES[at + e / 16u * pitch + e % 16u / 4u][e % 4u] = uint(s.sums[i]);
    }
}
#endif
