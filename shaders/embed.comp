#version 450
#extension GL_GOOGLE_include_directive : require

// OpEmbed for a part of a table: the rows whose index lies in it. Workgroups (words of a row, row).

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint TYPE = 0u; // units.TableType

const uint BF16 = 0u;
const uint F16 = 1u;

#define STATUS 3
#include "numerics.glsl"
#include "status.glsl"
#include "chain.glsl"

layout(std430, set = 0, binding = 0) coherent buffer Ids { float ids[]; };
layout(std430, set = 0, binding = 1) readonly buffer Table { uint table[]; };
layout(std430, set = 0, binding = 2) coherent writeonly buffer Dst { float dst[]; };

layout(push_constant) uniform Push {
    uint stride; // values of a row of ids
    uint rows;   // of the table
    uint first;  // row of the part
    uint held;   // rows of the part
    uint width;
    uint words; // of a row of the table
    uint op;
    float factor;
    uint awaited; // chain.glsl
    uint workgroups;
    uint own;
};

// f16 is exact, also for subnormals.
float f16(uint h) {
    uint exponent = h >> 10 & 0x1fu;
    uint mantissa = h & 0x3ffu;
    uint bits = (exponent + 112u) << 23 | mantissa << 13;
    if (exponent == 0u) {
        precise float v = float(mantissa) * pow2(-24);
        bits = floatBitsToUint(v);
    } else if (exponent == 0x1fu) {
        bits |= INF_BITS;
    }
    return uintBitsToFloat(bits | (h & 0x8000u) << 16);
}

void put(uint column, float x) {
    if (column < width) {
        precise float y = flushed(x) * factor;
        dst[gl_WorkGroupID.y * width + column] = flushed(y);
    }
}

void look(uint row) {
    float id = ids[row * stride];
    uint bits = floatBitsToUint(id);
    uint at = 0u;
    bool known = bits <= floatBitsToUint(float(rows - 1u)); // nor is it negative, or not a number
    if (known) {
        at = uint(id);
        known = floatBitsToUint(float(at)) == bits;
    }
    if (!known) {
        fail(op, row);
        return;
    }
    if (at - first >= held) {
        return;
    }
    for (uint i = gl_GlobalInvocationID.x; i < words; i += gl_NumWorkGroups.x * gl_WorkGroupSize.x) {
        uint word = table[(at - first) * words + i];
        if (TYPE == BF16) {
            put(2u * i, uintBitsToFloat(word << 16));
            put(2u * i + 1u, uintBitsToFloat(word & 0xffff0000u));
        } else if (TYPE == F16) {
            put(2u * i, f16(word & 0xffffu));
            put(2u * i + 1u, f16(word >> 16));
        } else {
            put(i, uintBitsToFloat(word));
        }
    }
}

void main() {
    await(awaited, workgroups);
    look(gl_WorkGroupID.y);
    count(own);
}
