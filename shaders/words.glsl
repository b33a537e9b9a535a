// A row of K values in words of four, PER of them for each invocation: word i of an invocation is word wordIndex(i) of the row.
// Includers have the specialisation constants PER and QUADS, which says that K is a multiple of four, and push constant K.

uint wordIndex(uint i) { return i * gl_WorkGroupSize.x + gl_LocalInvocationID.x; }

// column is the index within the row of value j of word i.
uint column(uint i, uint j) { return 4u * wordIndex(i) + j; }

// WORD_READER defines name(base, i), word i of the row that begins at base in a buffer, zero beyond K: floats are the values of
// the buffer and quads the same by four.
#define WORD_READER(name, floats, quads) \
    vec4 name(uint base, uint i) { \
        vec4 word = vec4(0.0); \
        if (QUADS) { \
            if (column(i, 0u) < K) { \
                word = quads[base / 4u + wordIndex(i)]; \
            } \
            return word; \
        } \
        for (uint j = 0u; j < 4u; j++) { \
            if (column(i, j) < K) { \
                word[j] = floats[base + column(i, j)]; \
            } \
        } \
        return word; \
    }

// WORD_WRITER defines name(base, i, word), which writes it as far as the row goes.
#define WORD_WRITER(name, floats, quads) \
    void name(uint base, uint i, vec4 word) { \
        if (QUADS) { \
            if (column(i, 0u) < K) { \
                quads[base / 4u + wordIndex(i)] = word; \
            } \
            return; \
        } \
        for (uint j = 0u; j < 4u; j++) { \
            if (column(i, j) < K) { \
                floats[base + column(i, j)] = word[j]; \
            } \
        } \
    }
