package units

import "fmt"

// vulkanOp records the operation at index i, and those after it that it merges; it returns how many.
type vulkanOp func(r *recording, i int) int

// vulkanOps has a function for every kind of operation.
var vulkanOps = [...]vulkanOp{
	OpQuantize: (*recording).quantise,
	OpLinear:   (*recording).linears,
	OpExperts:  nil,
}

// ops records the operations [first, end) of the program.
func (r *recording) ops(first, end int) {
	for i := first; i < end && r.err == nil; {
		kind := r.prog.Ops[i].Kind
		if int(kind) >= len(vulkanOps) || vulkanOps[kind] == nil {
			r.fail(fmt.Errorf("%s is not implemented on Vulkan", kind))
			return
		}
		n := vulkanOps[kind](r, i)
		if r.err != nil {
			r.err = fmt.Errorf("op %d (%s, layer %d): %w", i, kind, r.prog.Ops[i].Layer, r.err)
		}
		i += n
	}
}
