#version 450

// What a step takes from the step before it: of each row the first values, [rows][to] of [rows][from]. Words, so that no bit
// changes.

layout(local_size_x_id = 0) in;

layout(std430, set = 0, binding = 0) readonly buffer Before { uint before[]; };
layout(std430, set = 0, binding = 1) writeonly buffer Next { uint next[]; };

layout(push_constant) uniform Push {
    uint count; // values of Next
    uint from;  // values of a row in Before
    uint to;    // and in Next
};

void main() {
    uint stride = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < count; i += stride) {
        next[i] = before[i / to * from + i % to];
    }
}
