// Outputs of a matrix whose inputs linear_matrix.comp has shared out, from ivec4 [parts][WEIGHT_LIMBS][3 limbs][rows][padded / 4],
// the third limb undefined but for wide rows. Includers have these names, define PARTIAL(i) as vector i of these, and have
// linear_input.glsl and linear_sums.glsl.

#extension GL_EXT_control_flow_attributes : require

const uint PARTS_AHEAD = 4u;

// Parts is what is loaded of the sums of a word of four outputs before anything else is known: the first PARTS_AHEAD parts of the
// limbs that every row has.
struct Parts {
    ivec4 first[2u * WEIGHT_LIMBS * PARTS_AHEAD];
};

// partAt is where part p of limb l lies for the word of outputs from n on.
uint partAt(uint p, uint l, uint row, uint n) { return (((p * WEIGHT_LIMBS * 3u + l) * rows + row) * padded + n) / 4u; }

// LOAD_PARTS are the statements that load parts for a word of a row from a buffer, as far as real says so.
#define LOAD_PARTS(loaded, buffer, row, n, real) \
    [[unroll]] for (uint ahead = 0u; ahead < 2u * WEIGHT_LIMBS * PARTS_AHEAD; ahead++) { \
        uint limbOf = ahead / PARTS_AHEAD; \
        bool there = real && ahead % PARTS_AHEAD < parts; \
        loaded.first[ahead] = there ? buffer[partAt(ahead % PARTS_AHEAD, limbOf / 2u * 3u + limbOf % 2u, row, n)] : ivec4(0); \
    }

// sumFrom adds up the parts of limb l from p on, PARTS_AHEAD loads at a time.
ivec4 sumFrom(uint p, uint l, uint row, uint n) {
    ivec4 s = ivec4(0);
    for (; p < parts; p += PARTS_AHEAD) {
        ivec4 v[PARTS_AHEAD];
        [[unroll]] for (uint i = 0u; i < PARTS_AHEAD; i++) {
            v[i] = p + i < parts ? PARTIAL(partAt(p + i, l, row, n)) : ivec4(0);
        }
        [[unroll]] for (uint i = 0u; i < PARTS_AHEAD; i++) {
            s += v[i];
        }
    }
    return s;
}

// joinedParts is t of NUMERICS.md section 4 for the word of outputs from n on.
vec4 joinedParts(Parts loaded, uint row, uint n, bool wide) {
    ivec4 u[WEIGHT_LIMBS * 3u];
    [[unroll]] for (uint b = 0u; b < WEIGHT_LIMBS; b++) {
        [[unroll]] for (uint l = 0u; l < 2u; l++) {
            ivec4 s = ivec4(0);
            [[unroll]] for (uint i = 0u; i < PARTS_AHEAD; i++) {
                s += loaded.first[(2u * b + l) * PARTS_AHEAD + i];
            }
            u[3u * b + l] = s;
        }
        u[3u * b + 2u] = ivec4(0);
    }
    if (parts > PARTS_AHEAD) {
        [[unroll]] for (uint l = 0u; l < WEIGHT_LIMBS * 3u; l++) {
            if (l % 3u < 2u) {
                u[l] += sumFrom(PARTS_AHEAD, l, row, n);
            }
        }
    }
    if (wide) {
        [[unroll]] for (uint l = 2u; l < WEIGHT_LIMBS * 3u; l += 3u) {
            u[l] = sumFrom(0u, l, row, n);
        }
    }
    const uint b = (WEIGHT_LIMBS - 1u) * 3u;
    vec4 t;
    [[unroll]] for (uint j = 0u; j < 4u; j++) {
        t[j] = joinedAll(ivec3(u[0][j], u[1][j], u[2][j]), ivec3(u[b][j], u[b + 1u][j], u[b + 2u][j]), wide);
    }
    return t;
}
