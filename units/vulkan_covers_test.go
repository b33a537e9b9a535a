package units

import (
	"fmt"
	"maps"
	"slices"
	"testing"
)

// TestVulkanGateCovers: a gate at a model's shapes tries every shader that batches of the model are computed with, whatever their
// rows and positions.
func TestVulkanGateCovers(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles a hundred shaders")
	}
	s := layerShape{hidden: 256, inter: 512, heads: 4, kvHeads: 2, headDim: 16, layers: 1, measured: 1}
	const slots, context = 4, 4096
	q, kv := s.heads*s.headDim, s.kvHeads*s.headDim
	for _, matrices := range []bool{false, true} {
		t.Run(fmt.Sprintf("matrices %v", matrices), func(t *testing.T) {
			d := vulkanTest(t, VulkanOptions{})
			if matrices {
				d.tiled, attendTiled = true, true
				defer func() { attendTiled = false }()
				d.useMatrices()
				d.plain = false
			}
			_, err := Gate(t.Context(), d, GateShapes{Norms: []int{s.hidden}, Embeds: []int{s.hidden}, Acts: []int{s.inter},
				Linears: []LinearShape{{q, s.hidden, Int8}, {kv, s.hidden, Int8}, {s.hidden, q, Int8}, {s.inter, s.hidden, Int8}, {s.hidden, s.inter, Int8}},
				Heads:   s.heads, KVHeads: s.kvHeads, HeadDim: s.headDim, RotaryDim: s.headDim, Context: 80})
			if err != nil {
				t.Fatal(err)
			}
			tried := maps.Clone(d.pipelines)
			before := layersProgram(t, d, s, slots, context)
			after := before // with a norm of what is added to the residual row too
			after.Ops = nil
			for _, op := range before.Ops {
				if op.Kind == OpAdd {
					norm := before.Ops[0]
					norm.Dst, norm.A = op.B, op.B
					after.Ops = append(after.Ops, norm)
				}
				if op.Kind == OpAct {
					op.Act = GELUTanh // as models with such norms have it
				}
				after.Ops = append(after.Ops, op)
			}
			biased := before // with biases before the products are used
			biased.Ops = nil
			for _, op := range before.Ops {
				if op.Kind == OpLinear {
					n, _ := op.Linear.Shape()
					if op.Bias, err = d.NewVector("bias", make([]float32, n)); err != nil {
						t.Fatal(err)
					}
				}
				biased.Ops = append(biased.Ops, op)
			}
			ids := before
			table, err := new(gateSeries).table(d, TableSpec{Rows: 40, Width: s.hidden})
			if err != nil {
				t.Fatal(err)
			}
			ids.In, ids.Bufs = Buf(len(before.Bufs)), append(slices.Clone(before.Bufs), BufSpec{F32, 1})
			ids.Ops = append([]Op{{Kind: OpEmbed, Dst: before.In, A: ids.In, B: None, Table: table}}, before.Ops...)
			for name, p := range map[string]Program{"norms before": before, "norms after too": after, "biases": biased, "of ids": ids} {
				missing := map[string][]batchShape{}
				x, err := d.Compile(p)
				if err != nil {
					t.Fatal(err)
				}
				e := x.(*vulkanExecutable)
				if err := e.reserve(1024); err != nil {
					t.Fatal(err)
				}
				for _, rows := range []int{1, 2, 3, 7, 8, 9, 16, 17, 20, 32, 33, 64, 65, 127, 128, 300, 1024} {
					for _, n := range []int{64, 128, 256, 512, 1024, 2048, context} {
						shape := batchShape{rows, n}
						r := e.newRecording(shape)
						r.compile = func(s shader, _, _ int) {
							if key := s.key(); tried[key] == nil && !slices.Contains(missing[key], shape) {
								missing[key] = append(missing[key], shape)
							}
						}
						if r.ops(); r.err != nil {
							t.Fatal(r.err)
						}
						r.free()
					}
				}
				for key, shapes := range missing {
					t.Errorf("%s: not gated: %s, for %v (rows and context)", name, key, shapes)
				}
			}
		})
	}
}
