#version 450
#extension GL_GOOGLE_include_directive : require

// Outputs of linear_matrix.comp from the sums of the parts of the inputs (linear_parts.glsl). Workgroup (outputs, rows), an
// invocation for each four outputs.

layout(local_size_x = 64) in;
#define PARTS
#include "linear.glsl"

layout(std430, set = 0, binding = 6) readonly buffer Sums { ivec4 partial[]; };

#define PARTIAL(i) partial[i]
#include "linear_parts.glsl"

void main() {
    uint n = gl_GlobalInvocationID.x * 4u;
    uint row = row0 + gl_WorkGroupID.y;
    if (n >= count) {
        return;
    }
    Parts loaded;
    LOAD_PARTS(loaded, partial, row, n, true)
    vec4 t = joinedParts(loaded, row, n, wideRow(row));
    for (uint j = 0u; j < 4u && n + j < count; j++) {
        y[row * N + first + n + j] = scaled(row, n + j, t[j]);
    }
}
