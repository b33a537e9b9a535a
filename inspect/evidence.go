package inspect

import (
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
)

// decide settles by the tensor index what config does not say reliably, and checks the index against the result.
func (d *draft) decide(ix *Index) error {
	s := &d.Spec
	if ix == nil {
		s.biased = d.bias
		maps.DeleteFunc(s.biased, func(role Role, _ bool) bool { return !s.Has(role) || !d.mayBias(role) })
		s.QKVFused = s.Has(RoleQKV)
		s.Bias = d.anyLinearBias()
		return nil
	}
	if err := d.decideNames(ix); err != nil {
		return err
	}
	if _, ok := ix.Tensors[s.names[RoleLMHead]+".weight"]; !ok {
		s.Tie = true
	}
	s.QKVFused = s.Has(RoleQKV)
	s.biased = make(map[Role]bool)
	for role, name := range s.names {
		if name == "" {
			continue
		}
		base := s.Tensor(role, d.firstLayer(role))
		_, plain := ix.Tensors[base+".weight"]
		if _, ok := ix.Tensors[base]; ok && !plain {
			if s.bare == nil {
				s.bare = make(map[Role]bool)
			}
			s.bare[role] = true
		}
		if _, ok := ix.Tensors[base+".bias"]; ok && d.mayBias(role) {
			s.biased[role] = true
		}
	}
	if err := d.decideLayout(ix); err != nil {
		return err
	}
	s.Bias = d.anyLinearBias()
	return d.check(ix)
}

// firstLayer is the first layer that has the role; 0 for those outside the layers.
func (d *draft) firstLayer(role Role) int {
	for layer := range d.Layers {
		if slices.Contains(d.LayerRoles(layer), role) {
			return layer
		}
	}
	return 0
}

// mayBias says where a bias has a meaning; elsewhere a tensor of that name is one that is not understood.
func (d *draft) mayBias(role Role) bool {
	if isNorm(role) {
		return d.Norm == normLN
	}
	return isLinear(role) || role == RoleLMHead && !d.Tie
}

func (d *draft) anyLinearBias() bool {
	for role := range d.biased {
		if isLinear(role) {
			return true
		}
	}
	return false
}

// prefixes are those of tensor names beside the family's own: none in files of the bare model, longer ones where the
// model was part of a larger one.
var prefixes = []string{"", "model.", "transformer.", "model.language_model.", "language_model.model.", "language_model."}

// decideNames settles prefix and spelling of tensor names.
func (d *draft) decideNames(ix *Index) error {
	core := strings.TrimPrefix(d.names[RoleEmbed], d.fam.prefix) + ".weight"
	var found []string
	for _, prefix := range append([]string{d.fam.prefix}, prefixes...) {
		if _, ok := ix.Tensors[prefix+core]; ok && !slices.Contains(found, prefix) {
			found = append(found, prefix)
		}
	}
	switch {
	case len(found) == 0:
		return fmt.Errorf("tensor %q is missing", d.fam.prefix+core)
	case len(found) > 1:
		return fmt.Errorf("tensors %q and %q are both there, which one is the embedding cannot be told", found[0]+core, found[1]+core)
	}
	d.names = d.prefixed(d.names, found[0])
	for _, other := range d.fam.alternatives {
		if other = d.prefixed(other, found[0]); d.holds(ix, other) {
			d.names = d.names.with(other)
			break
		}
	}
	head := "language_model." + d.names[RoleLMHead]
	if _, ok := ix.Tensors[head+".weight"]; ok {
		d.names = d.names.with(names{RoleLMHead: head})
	}
	return nil
}

// prefixed replaces the family's own prefix.
func (d *draft) prefixed(n names, prefix string) names {
	out := make(names, len(n))
	for role, name := range n {
		if rest, ok := strings.CutPrefix(name, d.fam.prefix); ok && name != "-" {
			name = prefix + rest
		}
		out[role] = name
	}
	return out
}

// holds says whether the index has the tensors of all the names in some layer.
func (d *draft) holds(ix *Index, n names) bool {
	probe := draft{Spec: d.Spec, fam: d.fam}
	probe.names = d.names.with(n)
	for role, name := range n {
		if name == "-" {
			continue
		}
		base := probe.Tensor(role, probe.firstLayer(role))
		_, weight := ix.Tensors[base+".weight"]
		if _, bare := ix.Tensors[base]; !weight && !bare {
			return false
		}
	}
	return true
}

// decideLayout compares shapes with the config. A square matrix says nothing, so one that is not decides for all; where
// every matrix is square the family's own layout stands.
func (d *draft) decideLayout(ix *Index) error {
	found := make(map[string]string) // layout -> a tensor that shows it
	for layer := range d.Layers {
		for _, role := range d.LayerRoles(layer) {
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
		for _, role := range d.LayerRoles(layer) {
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
	if role == RoleLMHead && d.Tie {
		return nil
	}
	for _, name := range d.WeightNames(role, layer) {
		expected[name] = true
		if err := d.checkWeight(ix, name, d.Shape(role), expected); err != nil {
			return err
		}
	}
	if name := d.BiasName(role, layer); name != "" {
		if _, ok := ix.Tensors[name]; !ok {
			return fmt.Errorf("tensor %q is missing, though layer %d has it", name, d.firstLayer(role))
		}
		n, _ := d.Dims(role)
		expected[name] = true
		return checkShape(ix, name, []int{n})
	}
	return nil
}

// checkWeight also accepts F8_E4M3 with a scale for each block.
func (d *draft) checkWeight(ix *Index, name string, want []int, expected map[string]bool) error {
	t, ok := ix.Tensors[name]
	if !ok || t.DType != F8 {
		return checkShape(ix, name, want)
	}
	if !slices.Equal(t.Shape, want) {
		return fmt.Errorf("tensor %q has shape %v, config says %v", name, t.Shape, want)
	}
	if d.ScaleBlock == nil || len(want) < 2 {
		return fmt.Errorf("tensor %q has type %s, but config has no scales for it (\"quantization_config\", \"weight_block_size\")", name, t.DType)
	}
	expected[name+scaleEnding] = true
	shape := scaleShape(want, d.ScaleBlock)
	if scale, ok := ix.Tensors[name+scaleEnding]; ok && scale.Elems() == 1 && !slices.ContainsFunc(shape, func(n int) bool { return n != 1 }) {
		shape = scale.Shape // a single scale has any number of dimensions
	}
	return checkShape(ix, name+scaleEnding, shape)
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
	if d.ScaleBlock != nil && (strings.HasSuffix(name, ".activation_scale") || strings.HasSuffix(name, ".input_scale")) {
		return true // for arithmetic in that format
	}
	return d.isSight(name) || strings.HasSuffix(name, "rotary_emb.inv_freq") || d.Tie && name == d.names[RoleLMHead]+".weight"
}
