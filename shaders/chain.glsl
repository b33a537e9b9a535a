// Chained dispatches (vulkan_chain.go): those of a step of one row begin without a barrier between them. What does not depend
// on the step, weights and cached keys and values, a workgroup loads at once; then it awaits the dispatch before its own, whose
// workgroups each count when their results are to be seen. All before that one have ended by then, since it has awaited them.
//
// A workgroup that awaits holds its place, so this rests on the device beginning workgroups in the order of their dispatches.
// On one that does not the wait ends all the same: the step is then computed again with barriers.
//
// Included after status.glsl. Shaders have as their last push constants
//
//   uint awaited;    // the counter of the dispatch before
//   uint workgroups; // how many it has, 0 to await nothing
//   uint own;        // the counter of this dispatch
//
// and what they read of the dispatches before lies in buffers that are coherent.

#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_spirv_intrinsics : require

const uint UNCOUNTED = 0xffffffffu; // own of a dispatch that nothing awaits
const uint POLLS = 4u;              // of a round, half a microsecond each
const uint MAX_ROUNDS = 1u << 15;   // a software renderer leaves a loop by itself after twice as many

const uint SCOPE_DEVICE = 1u;
const uint SCOPE_WORKGROUP = 2u;
const uint RELAXED = 0u;
const uint ACQUIRE = 0x42u; // of buffers
const uint RELEASE = 0x44u;
spirv_instruction(id = 227) uint atomicLoad(spirv_by_reference uint at, uint scope, uint semantics);
spirv_instruction(id = 225) void order(uint scope, uint semantics); // a memory barrier

// await waits for the dispatch before. All invocations call it together.
void await(uint awaited, uint workgroups) {
    if (gl_LocalInvocationID.x == 0u && workgroups > 0u) {
        bool counted = false;
        for (uint round = 0u; !counted; round++) {
            [[unroll]] for (uint i = 0u; i < POLLS; i++) {
                counted = counted || atomicLoad(counters[awaited], SCOPE_DEVICE, RELAXED) >= workgroups;
            }
            if (!counted && round == MAX_ROUNDS) {
                atomicOr(stalled, 1u);
            }
            if (!counted && round % 64u == 0u && atomicLoad(stalled, SCOPE_DEVICE, RELAXED) != 0u) {
                break; // nor need those after it wait
            }
        }
        // What is read of the dispatch before is coherent and comes from where all workgroups see it: it must only not be read
        // earlier than this. To acquire for the whole device waits for the weights under way, too.
        order(SCOPE_WORKGROUP, ACQUIRE);
    }
    barrier();
}

// count says that this workgroup has written its results. All invocations call it together, after the last of them.
void count(uint own) {
    order(SCOPE_WORKGROUP, RELEASE);
    barrier();
    if (gl_LocalInvocationID.x == 0u && own != UNCOUNTED) {
        order(SCOPE_DEVICE, RELEASE); // for all of them, which is quicker than each for itself
        atomicAdd(counters[own], 1u);
    }
}
