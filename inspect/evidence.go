package inspect

import (
	"fmt"
	"slices"
	"sort"
	"strings"
)

// decide settles by the tensor index what config does not say reliably, and checks the index against the result.
func (d *draft) decide(ix *Index) error {
	s := &d.Spec
	if ix == nil {
		s.biased = d.bias
		s.QKVFused = s.names[RoleQKV] != ""
		s.Bias = d.anyLinearBias()
		return nil
	}
	if err := d.decideNames(ix); err != nil {
		return err
	}
	if _, ok := ix.Tensors[s.names[RoleLMHead]+".weight"]; !ok {
		s.Tie = true
	}
	s.QKVFused = s.names[RoleQKV] != ""
	if err := d.decideLayout(ix); err != nil {
		return err
	}
	s.biased = make(map[Role]bool)
	for role := range s.names {
		if _, ok := ix.Tensors[s.Tensor(role, 0)+".bias"]; ok && d.mayBias(role) {
			s.biased[role] = true
		}
	}
	s.Bias = d.anyLinearBias()
	return d.check(ix)
}

// mayBias says where a bias has a meaning; elsewhere a tensor of that name is one that is not understood.
func (d *draft) mayBias(role Role) bool {
	if d.Norm == normLN && (role == RoleAttnNorm || role == RoleMLPNorm || role == RoleFinalNorm) {
		return true
	}
	return isLinear(role)
}

func (d *draft) anyLinearBias() bool {
	for role := range d.biased {
		if isLinear(role) {
			return true
		}
	}
	return false
}

// decideNames keeps or drops the prefix of tensor names: files of the bare model are written without it.
func (d *draft) decideNames(ix *Index) error {
	full := d.fam.names[RoleEmbed] + ".weight"
	bare := strings.TrimPrefix(full, d.fam.prefix)
	_, hasFull := ix.Tensors[full]
	_, hasBare := ix.Tensors[bare]
	switch {
	case hasFull && hasBare:
		return fmt.Errorf("tensors %q and %q are both there, which one is the embedding cannot be told", full, bare)
	case hasFull:
		return nil
	case !hasBare:
		return fmt.Errorf("tensor %q is missing", full)
	}
	trimmed := make(names, len(d.fam.names))
	for role, name := range d.fam.names {
		trimmed[role] = strings.TrimPrefix(name, d.fam.prefix)
	}
	d.names = trimmed
	return nil
}

// decideLayout compares shapes with the config. A square matrix says nothing, so one that is not decides for all; where
// every matrix is square the family's own layout stands.
func (d *draft) decideLayout(ix *Index) error {
	found := make(map[string]string) // layout -> a tensor that shows it
	for layer := range d.Layers {
		for _, role := range d.LayerRoles() {
			n, k := d.Dims(role)
			if !isLinear(role) || n == k {
				continue
			}
			name := d.Tensor(role, layer) + ".weight"
			shape := ix.Tensors[name].Shape
			switch {
			case slices.Equal(shape, []int{n, k}):
				found[layoutOutIn] = name
			case slices.Equal(shape, []int{k, n}):
				found[layoutInOut] = name
			}
		}
	}
	if len(found) > 1 {
		return fmt.Errorf("tensor %q is stored out x in but %q in x out", found[layoutOutIn], found[layoutInOut])
	}
	for layout := range found {
		d.WeightLayout = layout
	}
	return nil
}

// check finds every tensor of the model in its right shape, with biases in all layers or none, and nothing else.
func (d *draft) check(ix *Index) error {
	expected := make(map[string]bool, len(ix.Tensors))
	embed, readout := d.HeadRoles()
	for _, role := range slices.Concat(embed, readout) {
		if err := d.checkTensor(ix, role, 0, expected); err != nil {
			return err
		}
	}
	for layer := range d.Layers {
		for _, role := range d.LayerRoles() {
			if err := d.checkTensor(ix, role, layer, expected); err != nil {
				return err
			}
		}
	}
	var extra []string
	for name := range ix.Tensors {
		if !expected[name] && !d.isUnused(name) {
			extra = append(extra, name)
		}
	}
	if len(extra) > 0 {
		sort.Strings(extra)
		return fmt.Errorf("tensor %q is not understood for %s (%d such), refusing to guess", extra[0], d.Family, len(extra))
	}
	return nil
}

func (d *draft) checkTensor(ix *Index, role Role, layer int, expected map[string]bool) error {
	name := d.Tensor(role, layer)
	if err := checkShape(ix, name+".weight", d.Shape(role)); err != nil {
		return err
	}
	expected[name+".weight"] = true
	if _, ok := ix.Tensors[name+".bias"]; !ok && d.biased[role] {
		return fmt.Errorf("tensor %q is missing, though layer 0 has it", name+".bias")
	}
	if d.biased[role] {
		n, _ := d.Dims(role)
		expected[name+".bias"] = true
		return checkShape(ix, name+".bias", []int{n})
	}
	return nil
}

func checkShape(ix *Index, name string, want []int) error {
	t, ok := ix.Tensors[name]
	if !ok {
		return fmt.Errorf("tensor %q is missing", name)
	}
	if !slices.Equal(t.Shape, want) {
		return fmt.Errorf("tensor %q has shape %v, config says %v", name, t.Shape, want)
	}
	switch t.DType {
	case F32, F16, BF16:
		return nil
	}
	return fmt.Errorf("tensor %q has type %s; supported are F32, F16, BF16", name, t.DType)
}

// isUnused knows tensors that are no part of the computation: constants that old files carry along, and a copy of the
// embedding saved as readout of a tied model.
func (d *draft) isUnused(name string) bool {
	for _, ending := range d.fam.unused {
		if strings.HasSuffix(name, ending) {
			return true
		}
	}
	return d.Tie && name == d.names[RoleLMHead]+".weight"
}
