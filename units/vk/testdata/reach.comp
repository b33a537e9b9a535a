#version 450
// Indices that the host chooses, into all that Checked knows. For the tests of the run-time.

layout(local_size_x = 8) in;
layout(constant_id = 0) const uint LENGTH = 8u;
layout(push_constant) uniform Push { uint read, written, counted, shared_, own; };
layout(binding = 0) readonly buffer X { vec4 x[]; };
layout(binding = 1) writeonly buffer Y { uint head; float y[]; };
layout(binding = 2) buffer Counts { uint counts[]; };

shared uint ofGroup[LENGTH];
uint ofInvocation[4];

float load(vec4 v[2], uint i) { return v[i].x; }

void main() {
	uint i = gl_LocalInvocationID.x;
	if (i != 7u) {
		return;
	}
	ofGroup[shared_] = i;
	ofInvocation[own] = ofGroup[shared_ / 2u];
	vec4 v[2] = vec4[](x[read], vec4(0.0));
	y[written] = load(v, own / 2u) + float(ofInvocation[own]);
	atomicAdd(counts[counted], 1u);
}
