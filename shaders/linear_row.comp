#version 450
#extension GL_GOOGLE_include_directive : require
//variant linear_row_dp4a DP4A
//variant linear_row_lut LUT

// Linear for a batch of one row, with what comes before and after it: each workgroup normalises (NORM) and quantises the row
// for itself, into shared memory, which is quicker than to wait for another dispatch that does; with READY the limbs are there.
// Then each subgroup computes an output at a time, UNROLL vectors ahead; the first weights are on their way before the row is
// there (chain.glsl). The outputs are those of up to three MATRICES side by side, or with GATED act(gate) * up of two matrices of the same
// shape; with ADD they are added to a residual row.
//
// The first workgroup keeps the normalised row and the limbs, which audits and other operations may read. Workgroup (outputs).

#extension GL_EXT_control_flow_attributes : require

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint WEIGHT_LIMBS = 1u; // 1: int8, 2: int8x2
layout(constant_id = 2) const bool HAS_BIAS = false;
layout(constant_id = 3) const uint UNROLL = 1u;
layout(constant_id = 4) const uint PER = 1u; // words of the row of an invocation
layout(constant_id = 5) const uint KV = 4u;  // vectors of 16 inputs, K padded
layout(constant_id = 6) const bool NORM = false;
layout(constant_id = 7) const bool LAYER_NORM = false;
layout(constant_id = 8) const bool NORM_BIAS = false;
layout(constant_id = 9) const bool GATED = false;
layout(constant_id = 10) const uint KIND = 0u; // of activation
layout(constant_id = 11) const bool ADD = false;
layout(constant_id = 12) const bool KEEP = false; // the normalised row and the limbs
layout(constant_id = 13) const bool READY = false; // the limbs are there
layout(constant_id = 14) const uint MATRICES = 1u;
layout(constant_id = 15) const bool QUADS = false;
layout(constant_id = 16) const uint ROOM = 0u; // vectors of shared memory at least
layout(constant_id = 17) const uint SUBGROUP = 1u; // its size

#define TABLES 16
#define STATUS 17
#define PRODUCTS 20
#include "numerics.glsl"
#include "int64.glsl"
#include "reduce.glsl"
#include "reduce64.glsl"
#include "status.glsl"
#include "chain.glsl"
#include "dot.glsl"
#include "activation.glsl"
#include "linear_sums.glsl"

// Of matrices A, B and C (linear.glsl): up is A and gate is B where GATED.
layout(std430, set = 0, binding = 0) readonly buffer WeightsA { uvec4 weightsA[]; };
layout(std430, set = 0, binding = 1) readonly buffer ScalesA { float scalesA[]; };
layout(std430, set = 0, binding = 2) readonly buffer BiasA { float biasA[]; };
layout(std430, set = 0, binding = 3) writeonly buffer OutA { float yA[]; };
layout(std430, set = 0, binding = 4) readonly buffer WeightsB { uvec4 weightsB[]; };
layout(std430, set = 0, binding = 5) readonly buffer ScalesB { float scalesB[]; };
layout(std430, set = 0, binding = 6) readonly buffer BiasB { float biasB[]; };
layout(std430, set = 0, binding = 7) writeonly buffer OutB { float yB[]; };
layout(std430, set = 0, binding = 8) readonly buffer WeightsC { uvec4 weightsC[]; };
layout(std430, set = 0, binding = 9) readonly buffer ScalesC { float scalesC[]; };
layout(std430, set = 0, binding = 10) readonly buffer BiasC { float biasC[]; };
layout(std430, set = 0, binding = 11) writeonly buffer OutC { float yC[]; };

layout(std430, set = 0, binding = 12) coherent buffer In { float x[]; };
layout(std430, set = 0, binding = 12) coherent buffer InQuads { vec4 xQuads[]; };
layout(std430, set = 0, binding = 13) readonly buffer NormWeight { float weight[]; };
layout(std430, set = 0, binding = 13) readonly buffer NormWeightQuads { vec4 weightQuads[]; };
layout(std430, set = 0, binding = 14) readonly buffer NormBias { float bias[]; };
layout(std430, set = 0, binding = 14) readonly buffer NormBiasQuads { vec4 biasQuads[]; };
layout(std430, set = 0, binding = 15) coherent buffer Residual { float residual[]; };
layout(std430, set = 0, binding = 18) writeonly buffer Normed { float normed[]; };
layout(std430, set = 0, binding = 18) writeonly buffer NormedQuads { vec4 normedQuads[]; };
layout(std430, set = 0, binding = 19) coherent buffer Limbs { uint limbs[]; }; // limbs.glsl
layout(std430, set = 0, binding = 19) coherent buffer LimbVectors { uvec4 limbVectors[]; };

layout(push_constant) uniform Push {
    uint K;
    uint first; // output rows of the part: first to first + countA
    uint countA;
    uint countB;
    uint countC;
    uint paddedA;
    uint paddedB;
    uint paddedC;
    uint op; // of the quantising
    uint normOp;
    float eps;
    float invK;
    uint awaited; // chain.glsl
    uint workgroups;
    uint own;
};

const uint rows = 1u;
const uint words = 4u * KV;
const uint SETS = GATED ? 2u : 1u;

shared uvec4 quantised[3u * KV > ROOM ? 3u * KV : ROOM]; // by plane

int rowExponentOf; // of the row
bool wide;

vec4 v[PER];

#include "words.glsl"
#include "limbs.glsl"

bool keeps() { return KEEP && gl_WorkGroupID.x == 0u; }

void keep(uint row, uint plane, uint word, uint value) {
    quantised[plane * KV + word / 4u][word % 4u] = value;
    if (keeps()) {
        limbs[limbPlane(plane, rows, words) + word] = value;
    }
}

void keepInfo(uint row, int exponent, bool isWide) {
    rowExponentOf = exponent;
    wide = isWide;
    if (keeps() && gl_LocalInvocationID.x == 0u) {
        limbs[limbInfo(0u, rows, words)] = uint(exponent);
        limbs[limbInfo(0u, rows, words) + 1u] = isWide ? 1u : 0u;
    }
}

#include "quantize.glsl"
#include "norm.glsl"

WORD_READER(inputWord, x, xQuads)
WORD_READER(weightWord, weight, weightQuads)
WORD_READER(biasWord, bias, biasQuads)
WORD_WRITER(writeNormed, normed, normedQuads)

// take copies the limbs that are there.
void take() {
    for (uint i = gl_LocalInvocationID.x; i < 2u * KV; i += gl_WorkGroupSize.x) {
        quantised[i] = limbVectors[i];
    }
    rowExponentOf = int(limbs[limbInfo(0u, rows, words)]);
    wide = limbs[limbInfo(0u, rows, words) + 1u] != 0u;
    if (wide) {
        for (uint i = 2u * KV + gl_LocalInvocationID.x; i < 3u * KV; i += gl_WorkGroupSize.x) {
            quantised[i] = limbVectors[i];
        }
    }
    barrier();
}

// loadParameters begins to make the limbs of the row with what does not depend on the step.
void loadParameters() {
    for (uint i = 0u; i < PER; i++) {
        if (NORM) {
            normWeight[i] = weightWord(0u, i);
        }
        if (NORM && NORM_BIAS) {
            normBias[i] = biasWord(0u, i);
        }
    }
}

// loadInput loads the row, all words at once: a device may end each condition around a load with a wait for it.
void loadInput() {
    if (QUADS) {
        for (uint i = 0u; i < PER; i++) {
            v[i] = xQuads[min(wordIndex(i), K / 4u - 1u)];
        }
        for (uint i = 0u; i < PER; i++) {
            if (column(i, 0u) >= K) {
                v[i] = vec4(0.0);
            }
        }
        return;
    }
    for (uint i = 0u; i < PER; i++) {
        v[i] = inputWord(0u, i);
    }
}

// prepare makes the limbs of the row.
void prepare() {
    if (READY) {
        take();
        return;
    }
    if (NORM) {
        normalize(0u);
        for (uint i = 0u; i < PER; i++) {
            if (keeps()) {
                writeNormed(0u, i, v[i]);
            }
        }
    }
    quantizeRow(0u);
}

// Place is an output: its matrix, and its number within the part of it.
struct Place {
    uint matrix;
    uint n;
    bool there;
};

Place placeOf(uint n) {
    if (MATRICES > 1u && n >= countA) {
        n -= countA;
        if (MATRICES > 2u && n >= countB) {
            return Place(2u, n - countB, n - countB < countC);
        }
        return Place(1u, n, n < countB);
    }
    return Place(0u, n, n < countA);
}

const uint STEP = UNROLL * SUBGROUP; // vectors
const uint STEPS = (KV + STEP - 1u) / STEP;
const bool WHOLE = KV % STEP == 0u;

const uint RESULTS = SETS * WEIGHT_LIMBS;
const uint LOADS = UNROLL * RESULTS;
uvec4 w[LOADS]; // w[(u * SETS + set) * WEIGHT_LIMBS + limb]

// FETCH loads the weights of a set from a matrix.
#define FETCH(set, weights, padded, n, k) \
    [[unroll]] for (uint u = 0u; u < UNROLL; u++) { \
        uint at = k + u * gl_SubgroupSize; \
        [[unroll]] for (uint limb = 0u; limb < WEIGHT_LIMBS; limb++) { \
            uvec4 from = uvec4(0u); \
            if (WHOLE || at < KV) { \
                from = weights[(limb * padded + n) * KV + at]; \
            } \
            w[(u * SETS + set) * WEIGHT_LIMBS + limb] = from; \
        } \
    }

// fetch loads the weights of an output at vectors k, k + subgroup size, ...: those beyond the row are zero.
void fetch(Place p, uint k) {
    if (!p.there) {
        return;
    }
    if (MATRICES > 2u && p.matrix == 2u) {
        FETCH(0u, weightsC, paddedC, p.n, k)
    } else if (MATRICES > 1u && p.matrix == 1u) {
        FETCH(0u, weightsB, paddedB, p.n, k)
    } else {
        FETCH(0u, weightsA, paddedA, p.n, k)
        if (GATED) {
            FETCH((SETS - 1u), weightsB, paddedB, p.n, k)
        }
    }
}

// Factors are what an output takes besides its sums.
struct Factors {
    float scale, bias, gateScale, gateBias, residual;
};

Factors factorsOf(Place p) {
    Factors f = Factors(0.0, 0.0, 0.0, 0.0, 0.0);
    if (!p.there) {
        return f;
    }
    uint column = first + p.n;
    if (MATRICES > 2u && p.matrix == 2u) {
        f.scale = scalesC[column];
        f.bias = HAS_BIAS ? biasC[column] : 0.0;
    } else if (MATRICES > 1u && p.matrix == 1u) {
        f.scale = scalesB[column];
        f.bias = HAS_BIAS ? biasB[column] : 0.0;
    } else {
        f.scale = scalesA[column];
        f.bias = HAS_BIAS ? biasA[column] : 0.0;
    }
    if (GATED) {
        f.gateScale = scalesB[column];
        f.gateBias = HAS_BIAS ? biasB[column] : 0.0;
    }
    return f;
}

// addend is the value of the residual row that an output is added to.
float addend(Place p) { return ADD && p.there ? residual[first + p.n] : 0.0; }

ivec3 sums[RESULTS];

// reduceSums adds up what the invocations of a subgroup have.
void reduceSums(uint i) { sums[i] = ivec3(subgroupAdd(sums[i].x), subgroupAdd(sums[i].y), wide ? subgroupAdd(sums[i].z) : 0); }

// write writes an output from the sums of the subgroup.
void write(Place p, Factors f) {
    uint column = first + p.n;
    float value = scaledSum(joinedAll(sums[0], sums[WEIGHT_LIMBS - 1u], wide), rowExponentOf, f.scale, HAS_BIAS, f.bias);
    if (GATED) {
        uint gate = (SETS - 1u) * WEIGHT_LIMBS;
        float t = joinedAll(sums[gate], sums[gate + WEIGHT_LIMBS - 1u], wide);
        precise float gated = activation(KIND, scaledSum(t, rowExponentOf, f.gateScale, HAS_BIAS, f.gateBias)) * value;
        value = flushed(gated);
    }
    if (MATRICES > 2u && p.matrix == 2u) {
        yC[column] = value;
    } else if (MATRICES > 1u && p.matrix == 1u) {
        yB[column] = value;
    } else {
        yA[column] = value;
    }
    if (ADD) {
        precise float sum = f.residual + value;
        residual[column] = flushed(sum);
    }
}

// finish makes an output.
void finish(Place p, Factors f) {
    // Not a loop: a compiler may leave one that has subgroup operations as it is.
    reduceSums(0u);
    if (RESULTS > 1u) {
        reduceSums(1u);
    }
    if (RESULTS > 2u) {
        reduceSums(2u);
        reduceSums(3u);
    }
    if (gl_SubgroupInvocationID == 0u) {
        write(p, f);
    }
}

// MULTIPLY adds the products of vectors u of the weights with vector at of the row.
#define MULTIPLY(u, at) { \
    uvec4 x0 = quantised[at]; \
    uvec4 x1 = quantised[KV + at]; \
    [[unroll]] for (uint i = 0u; i < RESULTS; i++) { \
        sums[i].x = dot16(sums[i].x, w[u * RESULTS + i], x0); \
        sums[i].y = dot16(sums[i].y, w[u * RESULTS + i], x1); \
    } \
    if (wide) { \
        uvec4 x2 = quantised[2u * KV + at]; \
        [[unroll]] for (uint i = 0u; i < RESULTS; i++) { \
            sums[i].z = dot16(sums[i].z, w[u * RESULTS + i], x2); \
        } \
    } \
}

// MULTIPLY_ALL does so with all vectors of the weights; those beyond the row are zero.
#define MULTIPLY_ALL(at) \
    [[unroll]] for (uint u = 0u; u < UNROLL; u++) { \
        MULTIPLY(u, (WHOLE ? at + u * SUBGROUP : min(at + u * SUBGROUP, KV - 1u))) \
    }

// The steps of a row are unrolled where the last is not a whole one, so that what would lie beyond the row takes no time.
#ifdef LUT // too long for a compiler
const bool UNROLLED = false;
#else
const bool UNROLLED = !WHOLE && STEPS <= 8u;
#endif

void compute() {
    // What a subgroup computes is the same for all of it, which compilers are not told of gl_SubgroupID.
    uint n = subgroupMin(gl_WorkGroupID.x * gl_NumSubgroups + gl_SubgroupID);
    uint stride = gl_NumWorkGroups.x * gl_NumSubgroups;
    uint lane = gl_SubgroupInvocationID;
    if (!READY) {
        loadParameters();
        clearReductions();
    }
    Place p = placeOf(n);
    fetch(p, lane);
    Factors f = factorsOf(p);
    await(awaited, workgroups);
    if (!READY) {
        loadInput();
    }
    f.residual = addend(p);
    prepare();
    while (p.there) {
        n += stride;
        Place next = placeOf(n);
        Factors ahead = factorsOf(next);
        ahead.residual = addend(next);
        [[unroll]] for (uint i = 0u; i < RESULTS; i++) {
            sums[i] = ivec3(0);
        }
        uint at = lane;
        if (UNROLLED) {
            [[unroll]] for (uint s = 1u; s < STEPS; s++) {
                MULTIPLY_ALL(at)
                at += STEP;
                fetch(p, at);
            }
        } else for (uint s = 1u; s < STEPS; s++) {
            MULTIPLY_ALL(at)
            at += STEP;
            fetch(p, at);
        }
        MULTIPLY_ALL(at)
        if (!next.there) { // by itself, since weights that are loaded on a condition move to registers of their own first
            finish(p, f);
            break;
        }
        fetch(next, lane);
        finish(p, f);
        p = next;
        f = ahead;
    }
}

void main() {
    compute();
    count(own);
}
