package units

import "fmt"

// vulkanOp records the operation at index i, and those after it that it merges; it returns how many.
type vulkanOp func(r *recording, i int) int

// vulkanOps has a function for every kind of operation.
var vulkanOps = [...]vulkanOp{
	OpNorm:     (*recording).norm,
	OpQuantize: (*recording).quantise,
	OpLinear:   (*recording).linears,
	OpRope:     (*recording).rope,
	OpStoreKV:  (*recording).storeKV,
	OpAttend:   (*recording).attend,
	OpAct:      (*recording).act,
	OpAdd:      (*recording).add,
	OpScale:    (*recording).scale,
	OpSoftcap:  (*recording).softcap,
	OpRoute:    (*recording).route,
	OpExperts:  (*recording).experts,
	OpTop:      (*recording).top,
	OpEmbed:    (*recording).embed,
}

// merges says that a function may record more than its own operation.
func (d *vulkanDevice) merges() bool { return true }

// ops records the operations of the program.
func (r *recording) ops() {
	for i := 0; i < len(r.prog.Ops) && r.err == nil; {
		kind := r.prog.Ops[i].Kind
		n := vulkanOps[kind](r, i)
		if r.err != nil {
			r.err = fmt.Errorf("op %d (%s, layer %d): %w", i, kind, r.prog.Ops[i].Layer, r.err)
		}
		r.groups = append(r.groups, opGroup{i, i + n})
		if r.cuts {
			r.cmds.Cut()
		}
		i += n
	}
}
