#version 450
#extension GL_GOOGLE_include_directive : require

// The list of experts.glsl for a batch. One workgroup.

const uint THREADS = 256u;
layout(local_size_x = 256) in;

#include "experts.glsl"

layout(std430, set = 0, binding = 0) readonly buffer Route { float route[]; }; // [rows][2 * topK]
layout(std430, set = 0, binding = 1) buffer List { uint list[]; };
layout(std430, set = 0, binding = 2) coherent buffer Next { uint next[]; }; // [experts] place of the next slot

layout(push_constant) uniform Push {
    uint rows;
    uint topK;
    uint experts;
};

uint choice(uint slot) { return choiceOf(route[slot / topK * 2u * topK + slot % topK], experts); }

void main() {
    uint tid = gl_LocalInvocationID.x;
    for (uint e = tid; e < experts; e += THREADS) {
        next[e] = 0u;
    }
    memoryBarrierBuffer();
    barrier();
    for (uint s = tid; s < rows * topK; s += THREADS) {
        atomicAdd(next[choice(s)], 1u);
    }
    memoryBarrierBuffer();
    barrier();
    if (tid == 0u) {
        uint at = 0u;
        for (uint e = 0u; e < experts; e++) {
            uint count = atomicExchange(next[e], at);
            list[e] = at;
            at += count;
        }
        list[experts] = at;
    }
    memoryBarrierBuffer();
    barrier();
    for (uint s = tid; s < rows * topK; s += THREADS) {
        list[experts + 1u + atomicAdd(next[choice(s)], 1u)] = s;
    }
}
