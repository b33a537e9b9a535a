// The arithmetic of units/NUMERICS.md, sections 1, 2 and 6.
//
// Float operations are * + - , comparisons and conversions only, each in an expression that is `precise`: the others are
// not rounded alike everywhere. A shader that needs the functions of section 6 defines TABLES as the binding of the
// committed tables (luts: exp2, recip, rsqrt, gauss, one after the other) before it includes this file.

#extension GL_EXT_spirv_intrinsics : require

// Round to nearest even, and do not treat the sign of zero or infinities loosely: with these two modes a device that
// flushes subnormals by default keeps them.
spirv_execution_mode(extensions = ["SPV_KHR_float_controls"], capabilities = [4467], 4462, 32); // RoundingModeRTE
spirv_execution_mode(extensions = ["SPV_KHR_float_controls"], capabilities = [4466], 4461, 32); // SignedZeroInfNanPreserve

const uint ABS_BITS = 0x7fffffffu;
const uint INF_BITS = 0x7f800000u;
const uint FLUSH_BELOW = 0x20000000u; // the bits of 2^-63
const int ZERO_EXPONENT = -80;        // of a zero row, and the smallest of any
const int MAX_TWO_LIMBS = 32639;
const int MAX_THREE_LIMBS = 8355711;
const uint WIDE_RATIO = 48u;

uint absBits(float x) { return floatBitsToUint(x) & ABS_BITS; }

float absOf(float x) { return uintBitsToFloat(absBits(x)); }

// flushed is flush of section 1: what every operation does to a value it stores.
float flushed(float x) { return absBits(x) < FLUSH_BELOW ? 0.0 : x; }

// ordered maps floats to integers of the same order, none of them to 0, and unordered back; both zeros are equal.
uint ordered(float x) {
    uint bits = floatBitsToUint(x);
    if ((bits & ABS_BITS) == 0u) {
        return 0x80000000u;
    }
    return (bits & 0x80000000u) != 0u ? ~bits : bits | 0x80000000u;
}

float unordered(uint v) { return uintBitsToFloat((v & 0x80000000u) != 0u ? v & ABS_BITS : ~v); }

// pow2 is 2^e for -126 <= e <= 127.
float pow2(int e) { return uintBitsToFloat(uint(e + 127) << 23); }

// exponentOf is floor(log2 x) of a normal x > 0 given by its bits.
int exponentOf(uint bits) { return int(bits >> 23 & 0xffu) - 127; }

// rounded is RNE of |x| < 2^31.
int rounded(float x) { return int(roundEven(x)); }

// scaledTo is RNE(x * factor), factor being a power of two.
int scaledTo(float x, float factor) {
    precise float y = x * factor;
    return rounded(y);
}

// scaledSmall is scaledTo where the result is within 2^22, in fewer operations: a float of 2^23 and more has no fraction, and its
// last bits are the integer.
int scaledSmall(float x, float factor) {
    precise float y = x * factor + 12582912.0;
    return int(floatBitsToUint(y) - 0x4b400000u);
}

// rowExponent is e of section 2, step 2, for a row whose largest magnitude has these bits (finite).
int rowExponent(uint top) {
    if (top == 0u) {
        return ZERO_EXPONENT;
    }
    int e = max(exponentOf(top) - 14, ZERO_EXPONENT);
    return scaledTo(uintBitsToFloat(top), pow2(-e)) > MAX_TWO_LIMBS ? e + 1 : e;
}

// isWide is rule 4 of section 2 for k values, given the largest and the sum of |q| >> 1.
bool isWide(uint largest, uint sum, uint k) {
    // largest > WIDE_RATIO * floor((sum - largest) / k) without a division by k
    return largest != 0u && sum - largest < ((largest - 1u) / WIDE_RATIO + 1u) * k;
}

// limbs2 cuts |q| <= 32639 into (hi, lo).
ivec2 limbs2(int q) {
    int hi = (q + 128) >> 8;
    return ivec2(hi, q - (hi << 8));
}

// limbs3 cuts |q| <= 8355711 into (h2, h1, h0).
ivec3 limbs3(int q) {
    int h2 = (q + 32896) >> 16;
    int r = q - (h2 << 16);
    int h1 = (r + 128) >> 8;
    return ivec3(h2, h1, r - (h1 << 8));
}

#ifdef TABLES
layout(std430, set = 0, binding = TABLES) readonly buffer Tables { float table[]; };

const uint EXP2_TABLE = 0u;
const uint RECIP_TABLE = 256u;
const uint RSQRT_TABLE = 512u;
const uint GAUSS_TABLE = 1024u;

// exp2Of is 2^t for t <= 0, and 0 below -60.
float exp2Of(float t) {
    if (t < -60.0) {
        return 0.0;
    }
    int i = scaledTo(t, 16777216.0);
    precise float z = float(i & 0xffff) * uintBitsToFloat(0x33317218u); // ln2 / 2^24
    precise float p = (z * 0.5 + 1.0) * z + 1.0;
    precise float y = (table[EXP2_TABLE + (uint(i >> 16) & 0xffu)] * p) * pow2(i >> 24);
    return y;
}

// expOf is e^x for x <= 0.
float expOf(float x) {
    precise float t = x * uintBitsToFloat(0x3fb8aa3bu); // log2 e
    return exp2Of(t);
}

// recipOf is 1/d for a normal d > 0.
float recipOf(float d) {
    uint bits = floatBitsToUint(d);
    float m = uintBitsToFloat((bits & 0x7fffffu) | 0x3f800000u);
    precise float y = table[RECIP_TABLE + (bits >> 15 & 0xffu)];
    y = y * (2.0 - m * y);
    y = y * (2.0 - m * y);
    y = y * pow2(-exponentOf(bits));
    return y;
}

// rsqrtOf is 1/sqrt(d) for a normal d > 0.
float rsqrtOf(float d) {
    uint bits = floatBitsToUint(d);
    int e = exponentOf(bits);
    uint odd = uint(e) & 1u;
    float m = uintBitsToFloat((bits & 0x7fffffu) | (127u + odd) << 23);
    precise float y = table[RSQRT_TABLE + (odd << 8 | (bits >> 15 & 0xffu))];
    precise float h = 0.5 * m;
    y = y * (1.5 - (h * y) * y);
    y = y * (1.5 - (h * y) * y);
    y = y * pow2(-(e >> 1));
    return y;
}

float sigmoid(float x) {
    float e = expOf(-absOf(x));
    precise float d = 1.0 + e;
    float r = recipOf(d);
    precise float low = e * r;
    return x >= 0.0 ? r : low;
}

float silu(float x) {
    precise float y = x * sigmoid(x);
    return flushed(y);
}

float geluTanh(float x) {
    if (absOf(x) > 16.0) {
        return x > 0.0 ? x : 0.0;
    }
    precise float cube = (x * x) * x;
    precise float u = (x + cube * uintBitsToFloat(0x3d372713u)) * uintBitsToFloat(0x3fcc422au); // 0.044715, 2 sqrt(2/pi)
    precise float y = x * sigmoid(u);
    return flushed(y);
}

// gelu is x * Phi(x) by the upper tail Q(|x|) of the normal distribution.
float gelu(float x) {
    float a = absOf(x);
    precise float q = 0.0;
    if (a < 6.0) {
        precise float scaled = a * 32.0;
        uint j = uint(scaled);
        precise float h = a - (float(j) + 0.5) * 0.03125;
        uint row = GAUSS_TABLE + 4u * j;
        q = table[row + 3u] * h + table[row + 2u];
        q = q * h + table[row + 1u];
        q = q * h + table[row];
    }
    precise float tail = x * q;
    precise float rest = x - tail;
    return flushed(x < 0.0 ? tail : rest);
}

// softcapOf is cap * tanh(x / cap) for finite x, inv = 1 / cap.
float softcapOf(float x, float cap, float inv) {
    precise float t = absOf(x) * inv;
    precise float t2 = -2.0 * t;
    float e = expOf(t2);
    precise float up = 1.0 + e;
    precise float y = cap * ((1.0 - e) * recipOf(up));
    return flushed(x < 0.0 ? -y : y);
}
#endif
