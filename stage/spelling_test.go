package stage_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"dchain/inspect"
	"dchain/stage"
	"dchain/units"
)

// values is a tensor in memory.
type values struct {
	shape []int
	v     []float32
}

// respell writes a model folder anew, with other tensors and another config, and opens it.
func respell(t *testing.T, m *inspect.Model, change func(tensors map[string]values, config map[string]any)) *inspect.Model {
	t.Helper()
	ctx := context.Background()
	tensors := make(map[string]values)
	for name, tensor := range m.Index.Tensors {
		v := values{tensor.Shape, make([]float32, tensor.Elems())}
		if err := m.Floats(ctx, tensor, 0, tensor.Elems(), v.v); err != nil {
			t.Fatal(err)
		}
		tensors[name] = v
	}
	var config map[string]any
	if err := json.Unmarshal(m.Config, &config); err != nil {
		t.Fatal(err)
	}
	change(tensors, config)

	header := map[string]any{"__metadata__": map[string]string{"format": "pt"}}
	var data []byte
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		begin := len(data)
		for _, x := range tensors[name].v {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(x))
		}
		header[name] = map[string]any{"dtype": "F32", "shape": tensors[name].shape, "data_offsets": []int{begin, len(data)}}
	}
	head, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	conf, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	file := append(binary.LittleEndian.AppendUint64(nil, uint64(len(head))), head...)
	dir := t.TempDir()
	for name, b := range map[string][]byte{"model.safetensors": append(file, data...), "config.json": conf} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	out, err := inspect.Open(ctx, dir, inspect.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { out.Close() })
	return out
}

// rename moves tensors whose name begins with a prefix.
func rename(tensors map[string]values, from, to string) {
	for _, name := range slices.Collect(maps.Keys(tensors)) {
		if rest, ok := strings.CutPrefix(name, from); ok {
			tensors[to+rest] = tensors[name]
			delete(tensors, name)
		}
	}
}

// fuseExperts joins the experts of each layer into one tensor, gate above up.
func fuseExperts(tensors map[string]values, prefix string, layers, experts int) {
	take := func(layer, expert int, part string) values {
		name := fmt.Sprintf("%slayers.%d.mlp.experts.%d.%s.weight", prefix, layer, expert, part)
		v := tensors[name]
		delete(tensors, name)
		return v
	}
	for layer := range layers {
		var gateUp, down values
		for e := range experts {
			gate, up, d := take(layer, e, "gate_proj"), take(layer, e, "up_proj"), take(layer, e, "down_proj")
			gateUp.shape = []int{experts, 2 * gate.shape[0], gate.shape[1]}
			gateUp.v = append(append(gateUp.v, gate.v...), up.v...)
			down.shape = []int{experts, d.shape[0], d.shape[1]}
			down.v = append(down.v, d.v...)
		}
		base := fmt.Sprintf("%slayers.%d.mlp.experts.", prefix, layer)
		tensors[base+"gate_up_proj"], tensors[base+"down_proj"] = gateUp, down
	}
}

// TestSpellings: the same weights under other tensor names, and a config in the older dialect, give the same bits.
func TestSpellings(t *testing.T) {
	unused := values{[]int{4}, []float32{1, 2, 3, 4}}
	for name, c := range map[string]struct {
		model  string
		change func(tensors map[string]values, config map[string]any)
	}{
		"all experts in one tensor, part of a larger model": {"qwen3_moe", func(tensors map[string]values, config map[string]any) {
			fuseExperts(tensors, "model.", 4, 8)
			rename(tensors, "model.", "model.language_model.")
			delete(config, "num_local_experts")
			config["num_experts"] = 8
		}},
		"experts by their newer names": {"mixtral", func(tensors map[string]values, config map[string]any) {
			for layer := range 4 {
				base := fmt.Sprintf("model.layers.%d.", layer)
				rename(tensors, base+"block_sparse_moe.", base+"mlp.")
				for e := range 4 {
					expert := fmt.Sprintf("%smlp.experts.%d.", base, e)
					rename(tensors, expert+"w1", expert+"gate_proj")
					rename(tensors, expert+"w2", expert+"down_proj")
					rename(tensors, expert+"w3", expert+"up_proj")
				}
			}
		}},
		"causal masks, older keys": {"gpt_neox", func(tensors map[string]values, config map[string]any) {
			for layer := range 4 {
				base := fmt.Sprintf("gpt_neox.layers.%d.attention.", layer)
				tensors[base+"bias"], tensors[base+"masked_bias"], tensors[base+"rotary_emb.inv_freq"] = unused, unused, unused
			}
			delete(config, "rope_parameters")
			config["rotary_pct"], config["rotary_emb_base"] = 0.25, 10000
		}},
		"the bare model, inverse frequencies, a copy of the embedding": {"llama3-rope", func(tensors map[string]values, config map[string]any) {
			tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
			rename(tensors, "model.", "")
			tensors["layers.0.self_attn.rotary_emb.inv_freq"] = unused
			config["rope_scaling"] = config["rope_parameters"]
			config["rope_theta"] = 500000.0
			delete(config["rope_scaling"].(map[string]any), "rope_theta")
			delete(config, "rope_parameters")
		}},
		"within a larger model": {"gemma3_text", func(tensors map[string]values, config map[string]any) {
			rename(tensors, "model.", "language_model.model.")
			config["rope_theta"], config["rope_local_base_freq"] = 1e6, 1e4
			config["sliding_window_pattern"] = 6
			delete(config, "rope_parameters")
			delete(config, "layer_types")
			delete(config, "_sliding_window_pattern")
		}},
		"the text part of a model that sees": {"gemma3-global", func(tensors map[string]values, config map[string]any) {
			rename(tensors, "model.", "model.language_model.")
			tensors["model.vision_tower.patch.weight"], tensors["model.multi_modal_projector.weight"] = unused, unused
			inner := maps.Clone(config)
			clear(config)
			config["architectures"], config["model_type"] = []string{"Gemma3ForConditionalGeneration"}, "gemma3"
			config["text_config"], config["vision_config"] = inner, map[string]any{"hidden_size": 4}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			m := openModel(t, "families/"+c.model)
			other := respell(t, m, c.change)
			var want, got []float32
			for model, dst := range map[*inspect.Model]*[]float32{m: &want, other: &got} {
				h, _ := localHead(t, model, localOptions{mode: units.Int8, returnAll: true, context: 32})
				*dst = allLogits(t, h, familyIDs(m, 32))
			}
			if !slices.Equal(got, want) {
				t.Errorf("logits differ by %g relative RMS", relativeRMS(got, want))
			}
		})
	}
}

// allLogits are the logits at every position.
func allLogits(t *testing.T, h *stage.Head, ids []int) []float32 {
	t.Helper()
	var all []float32
	err := h.EachLogits(context.Background(), ids, func(_ int, logits []float32) error {
		all = append(all, logits...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestExpertsOfAStage: a stage reads the experts of its own layers and no others.
func TestExpertsOfAStage(t *testing.T) {
	for _, model := range []string{"qwen3_moe", "granitemoe", "qwen3_moe-mixed"} {
		m := openModel(t, "families/"+model)
		tensors, err := m.StageTensors(1, 1, false, false)
		if err != nil {
			t.Fatal(err)
		}
		if len(tensors) == 0 {
			t.Fatalf("%s: layer 1 has no tensors", model)
		}
		for _, tensor := range tensors {
			if !strings.HasPrefix(tensor.Name, "model.layers.1.") {
				t.Errorf("%s: a stage of layer 1 reads %s", model, tensor.Name)
			}
		}
	}
}

// TestLongRope: engines with contexts on two sides of the original one have different rotary positions, and one cannot
// stand in for the other.
func TestLongRope(t *testing.T) {
	m := openModel(t, "families/phi3-long")
	original := m.Spec.RopeOriginal
	w, err := stage.Load(context.Background(), m, newDevice(t, 1), stage.LoadOptions{Range: everyLayer(m.Spec.Layers)[0], Mode: units.Int8, Context: original + 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stage.NewEngine(w, stage.EngineOptions{Context: original, Sessions: 1}); err == nil || !strings.Contains(err.Error(), "rotary positions") {
		t.Errorf("a short context on long tables: %v", err)
	}
	ids := familyIDs(m, original)
	short, _ := localHead(t, m, localOptions{mode: units.Int8, returnAll: true, context: original})
	long, _ := localHead(t, m, localOptions{mode: units.Int8, returnAll: true, context: original + 1})
	if slices.Equal(allLogits(t, short, ids), allLogits(t, long, ids)) {
		t.Error("the context does not matter")
	}
}
