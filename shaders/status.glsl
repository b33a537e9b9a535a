// The first failure of a step: the lowest operation << 16 | row of those that failed. A shader defines STATUS as the
// binding before it includes this file.

layout(std430, set = 0, binding = STATUS) buffer Status {
    uint firstFailure;
    uint stalled;    // a chained dispatch has waited in vain (chain.glsl)
    uint counters[]; // of the workgroups of each chained dispatch that have ended
};

void fail(uint op, uint row) { atomicMin(firstFailure, op << 16 | row); }
