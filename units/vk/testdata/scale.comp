#version 450
// y[i] = x[i] * factor + bias, all float32. For the tests of the run-time.
#extension GL_EXT_spirv_intrinsics : require
spirv_execution_mode(extensions = ["SPV_KHR_float_controls"], capabilities = [4466], 4461, 32);
spirv_execution_mode(extensions = ["SPV_KHR_float_controls"], capabilities = [4467], 4462, 32);

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const float bias = 0;
layout(push_constant) uniform Push { uint n; float factor; };
layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) writeonly buffer Y { float y[]; };

void main() {
	uint i = gl_GlobalInvocationID.x;
	if (i < n) {
		precise float v = x[i] * factor;
		v = v + bias;
		y[i] = v;
	}
}
