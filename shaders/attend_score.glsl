// A score, NUMERICS.md sections 8 and 8.1, for attend.glsl. Includers have the specialisation constants CAP and ALIBI, and
// the binding SLOPES, which is 10 unless they define it.

#ifndef SLOPES
#define SLOPES 10
#endif
layout(std430, set = 0, binding = SLOPES) readonly buffer Slopes { float slopes[]; };

// joinedSums is c from the sums of limb products H, M and L.
float joinedSums(int h, int m, int l) {
    precise float c = (float(h) * 256.0 + float(m)) * 256.0 + float(l);
    return c;
}

// scoreOf is s_j from the joined sums c and the scales 2^e of query and key, for position j seen by a row at pos.
float scoreOf(float c, float queryScale, float keyScale, uint row, uint head, int pos, uint j) {
    precise float s = ((c * queryScale) * keyScale) * scale;
    s = flushed(s);
    if (CAP) {
        if (absBits(s) >= INF_BITS) {
            fail(op, row);
        }
        s = softcapOf(s, cap, inverseCap);
    }
    if (ALIBI) {
        precise float distance = slopes[head] * float(int(j) - pos);
        s = s + distance;
        s = flushed(s);
    }
    return s;
}

float scoreOf(ivec3 sums, float queryScale, float keyScale, uint row, uint head, int pos, uint j) {
    return scoreOf(joinedSums(sums.x, sums.y, sums.z), queryScale, keyScale, row, head, pos, j);
}
