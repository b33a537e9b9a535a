// From unit sums to an output, NUMERICS.md section 4. Includers have the specialisation constant WEIGHT_LIMBS.

// joined is T of section 4 for one weight limb; u are the unit sums by limb of the row.
float joined(ivec3 u, bool wide) {
    precise float t = float(u.x) * 256.0 + float(u.y);
    precise float t3 = t * 256.0 + float(u.z);
    return wide ? t3 : t;
}

// joinedAll is t: u2 are the unit sums of the second weight limb.
float joinedAll(ivec3 u, ivec3 u2, bool wide) {
    precise float t = joined(u, wide);
    if (WEIGHT_LIMBS == 2u) {
        t = t * 256.0 + joined(u2, wide);
    }
    return t;
}

// scaledSum is y for a row of that exponent.
float scaledSum(float t, int exponent, float scale, bool hasBias, float bias) {
    precise float v = (t * pow2(exponent)) * scale;
    if (hasBias) {
        v = v + bias;
    }
    return flushed(v);
}
