// Outputs of a matrix whose inputs linear_matrix.comp has shared out, from ivec4 [parts][WEIGHT_LIMBS][3 limbs][rows][padded / 4],
// the third limb undefined but for wide rows. Includers have these names, define PARTIAL(i) as vector i of these, and have
// linear_input.glsl and linear_sums.glsl.

#extension GL_EXT_control_flow_attributes : require

const uint PARTS_AHEAD = 4u;

// sumOfParts adds up the parts of limb l for four outputs from n on, PARTS_AHEAD loads at a time.
ivec4 sumOfParts(uint l, uint row, uint n) {
    ivec4 s = ivec4(0);
    for (uint p = 0u; p < parts; p += PARTS_AHEAD) {
        ivec4 v[PARTS_AHEAD];
        [[unroll]] for (uint i = 0u; i < PARTS_AHEAD; i++) {
            v[i] = p + i < parts ? PARTIAL(((((p + i) * WEIGHT_LIMBS * 3u + l) * rows + row) * padded + n) / 4u) : ivec4(0);
        }
        [[unroll]] for (uint i = 0u; i < PARTS_AHEAD; i++) {
            s += v[i];
        }
    }
    return s;
}

// joinedParts is t of NUMERICS.md section 4 for four outputs from n on.
vec4 joinedParts(uint row, uint n) {
    bool wide = wideRow(row);
    ivec4 u[WEIGHT_LIMBS * 3u];
    [[unroll]] for (uint l = 0u; l < WEIGHT_LIMBS * 3u; l++) {
        u[l] = l % 3u < 2u || wide ? sumOfParts(l, row, n) : ivec4(0);
    }
    const uint b = (WEIGHT_LIMBS - 1u) * 3u;
    vec4 t;
    [[unroll]] for (uint j = 0u; j < 4u; j++) {
        t[j] = joinedAll(ivec3(u[0][j], u[1][j], u[2][j]), ivec3(u[b][j], u[b + 1u][j], u[b + 2u][j]), wide);
    }
    return t;
}
