#version 450

// What a step takes over before its operations, and hands out after them: words, and of rows the first values, all as they are.
// Copies of the driver would do, but a device that computes may change over to those and back only when it is idle.

layout(local_size_x_id = 0) in;

layout(std430, set = 0, binding = 0) readonly buffer Words { uint words[]; };
layout(std430, set = 0, binding = 1) writeonly buffer ToWords { uint toWords[]; };
layout(std430, set = 0, binding = 2) readonly buffer Rows { uint rows[]; };
layout(std430, set = 0, binding = 3) writeonly buffer ToRows { uint toRows[]; };

layout(push_constant) uniform Push {
    uint wordCount;
    uint rowValues; // of all rows, as they arrive
    uint from;      // of a row where it comes from
    uint to;        // and where it goes to
    uint first;     // where rows begin in Rows
    uint toFirst;   // and in ToRows
};

void main() {
    uint stride = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < wordCount; i += stride) {
        toWords[i] = words[i];
    }
    for (uint i = gl_GlobalInvocationID.x; i < rowValues; i += stride) {
        toRows[toFirst + i] = rows[first + i / to * from + i % to];
    }
}
