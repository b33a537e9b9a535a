// The heads of queries, keys and values before they are quantised, with rotary positions (NUMERICS.md section 7) for queries and
// keys where ROPE says so. Includers have kv.glsl and the specialisation constants ROPE and PAIRS, and define HEADS as the first
// of seven bindings; HEAD_INPUTS qualifies the first three where the values come from a chained dispatch (chain.glsl). With
// HEAD_VALUES they have functions of their own for what these give.

#ifndef HEAD_INPUTS
#define HEAD_INPUTS readonly
#endif

#ifndef HEAD_VALUES
layout(std430, set = 0, binding = HEADS) HEAD_INPUTS buffer Q { float qIn[]; };
layout(std430, set = 0, binding = HEADS + 1) HEAD_INPUTS buffer K { float kIn[]; };
layout(std430, set = 0, binding = HEADS + 2) HEAD_INPUTS buffer V { float vIn[]; };
#endif
layout(std430, set = 0, binding = HEADS + 3) readonly buffer QueryCos { float queryCos[]; };
layout(std430, set = 0, binding = HEADS + 4) readonly buffer QuerySin { float querySin[]; };
layout(std430, set = 0, binding = HEADS + 5) readonly buffer KeyCos { float keyCos[]; };
layout(std430, set = 0, binding = HEADS + 6) readonly buffer KeySin { float keySin[]; };

// The same by four.
#ifndef HEAD_VALUES
layout(std430, set = 0, binding = HEADS) HEAD_INPUTS buffer QQuads { vec4 qQuads[]; };
layout(std430, set = 0, binding = HEADS + 1) HEAD_INPUTS buffer KQuads { vec4 kQuads[]; };
layout(std430, set = 0, binding = HEADS + 2) HEAD_INPUTS buffer VQuads { vec4 vQuads[]; };
#endif
layout(std430, set = 0, binding = HEADS + 3) readonly buffer QueryCosQuads { vec4 queryCosQuads[]; };
layout(std430, set = 0, binding = HEADS + 4) readonly buffer QuerySinQuads { vec4 querySinQuads[]; };
layout(std430, set = 0, binding = HEADS + 5) readonly buffer KeyCosQuads { vec4 keyCosQuads[]; };
layout(std430, set = 0, binding = HEADS + 6) readonly buffer KeySinQuads { vec4 keySinQuads[]; };

const uint QUERY = 0u;
const uint KEY = 1u;
const uint VALUE = 2u;

#ifndef HEAD_VALUES
float headInput(uint part, uint at) {
    if (part == QUERY) {
        return qIn[at];
    }
    return part == KEY ? kIn[at] : vIn[at];
}
#endif

// headValue is channel d of the head that begins at base, after rotation; 0 beyond HD.
float headValue(uint part, uint base, int pos, uint d) {
    if (d >= HD) {
        return 0.0;
    }
    float x = headInput(part, base + d);
    if (ROPE == 0u || part == VALUE || d >= 2u * PAIRS) {
        return x;
    }
    uint pair = ROPE == 2u ? d / 2u : d % PAIRS;
    bool second = ROPE == 2u ? (d & 1u) == 1u : d >= PAIRS;
    uint step = ROPE == 2u ? 1u : PAIRS;
    float other = headInput(part, base + (second ? d - step : d + step));
    uint t = uint(pos) * PAIRS + pair;
    float c = part == QUERY ? queryCos[t] : keyCos[t];
    float s = part == QUERY ? querySin[t] : keySin[t];
    precise float y0 = x * c - other * s;
    precise float y1 = x * c + other * s;
    return flushed(second ? y1 : y0);
}

#ifndef HEAD_VALUES
vec4 headQuads(uint part, uint at) {
    if (part == QUERY) {
        return qQuads[at];
    }
    return part == KEY ? kQuads[at] : vQuads[at];
}
#endif

// headWord is word w, four channels, of the head that begins at base.
vec4 headWord(uint part, uint base, int pos, uint w) {
    vec4 x = vec4(0.0);
    if (HD % 4u != 0u || ROPE == 2u || ROPE != 0u && PAIRS % 4u != 0u) {
        for (uint i = 0u; i < 4u; i++) {
            x[i] = headValue(part, base, pos, 4u * w + i);
        }
        return x;
    }
    if (4u * w >= HD) {
        return x;
    }
    x = headQuads(part, base / 4u + w);
    if (ROPE == 0u || part == VALUE || 2u * w >= PAIRS) {
        return x;
    }
    bool second = 4u * w >= PAIRS;
    vec4 other = headQuads(part, base / 4u + (second ? w - PAIRS / 4u : w + PAIRS / 4u));
    uint t = uint(pos) * PAIRS / 4u + w % max(PAIRS / 4u, 1u);
    vec4 c = part == QUERY ? queryCosQuads[t] : keyCosQuads[t];
    vec4 s = part == QUERY ? querySinQuads[t] : keySinQuads[t];
    for (uint i = 0u; i < 4u; i++) {
        precise float y0 = x[i] * c[i] - other[i] * s[i];
        precise float y1 = x[i] * c[i] + other[i] * s[i];
        x[i] = flushed(second ? y1 : y0);
    }
    return x;
}
