package stage_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"dchain/inspect"
	"dchain/plan"
	"dchain/stage"
	"dchain/units"
	"dchain/units/vk/vktest"
)

func vulkanDevice(t *testing.T, tier units.VulkanTier) units.Device {
	t.Helper()
	dev, err := units.NewVulkan(units.VulkanOptions{Tier: tier, Threads: 2, CacheDir: "-"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	return dev
}

// observedHead is a whole model on a device, every layer of which is a segment that is recorded.
func observedHead(t *testing.T, m *inspect.Model, dev units.Device, mode units.WeightMode, positions int) (stage.Run, func()) {
	t.Helper()
	layers := m.Spec.Layers
	w, err := stage.Load(context.Background(), m, dev, stage.LoadOptions{Range: plan.Range{First: 0, Last: layers - 1}, Readout: true, Mode: mode, Context: positions})
	if err != nil {
		t.Fatal(err)
	}
	rec := stage.NewRecorder()
	e, err := stage.NewEngine(w, stage.EngineOptions{Context: positions, Sessions: 1, Cuts: everyLayer(layers), Trace: rec.Trace})
	if err != nil {
		t.Fatal(err)
	}
	h, err := stage.NewHead(w, stage.HeadOptions{Stages: []stage.Stage{e}, Chunk: 48})
	if err != nil {
		t.Fatal(err)
	}
	return stage.Run{Head: h, Recorder: rec}, func() {
		e.Close()
		w.Close()
	}
}

// TestFamiliesOnVulkan: for every family, beyond its window, and the built-in models, every tier of a Vulkan device gives the
// ids and the hashes of every layer's output that the processor gives, in a prefill of two chunks and in single steps.
func TestFamiliesOnVulkan(t *testing.T) {
	const promptLen, answerLen = 70, 4
	if testing.Short() {
		t.Skip("a software renderer takes minutes")
	}
	device := &vktest.Devices(t)[0]
	models := slices.Clone(talesModels)
	for _, name := range familyModels(t) {
		models = append(models, "families/"+name)
	}
	for _, tier := range units.VulkanTiers(device) {
		mode := units.Int8
		if tier == units.VulkanLUT {
			mode = units.Int8x2
		}
		dev := vulkanDevice(t, tier)
		for _, name := range models {
			t.Run(fmt.Sprintf("%s/%v/%s", tier, mode, name), func(t *testing.T) {
				m := openModel(t, name)
				cpu, endCPU := observedHead(t, m, newDevice(t, 2), mode, promptLen+answerLen)
				defer endCPU()
				gpu, endGPU := observedHead(t, m, dev, mode, promptLen+answerLen)
				defer endGPU()
				diff, got, err := stage.Compare(context.Background(), gpu, cpu, stage.GenerateOptions{Prompt: familyIDs(m, promptLen), MaxTokens: answerLen})
				if err != nil {
					t.Fatal(err)
				}
				if diff != nil {
					t.Fatal(diff)
				}
				if n := gpu.Recorder.Rows(); len(got.IDs) == 0 || n != m.Spec.Layers*(promptLen+len(got.IDs)-1) {
					t.Fatalf("%d boundary rows of %d ids were compared", n, len(got.IDs))
				}
			})
		}
	}
}

// TestPackedOnVulkan: the matrices that a Vulkan device has kept give it the same logits as those it has quantised, and any tier
// opens them.
func TestPackedOnVulkan(t *testing.T) {
	device := &vktest.Devices(t)[0]
	m := openModel(t, "tales-qwen2")
	dir := t.TempDir()
	first := loadCachedOn(t, m, vulkanDevice(t, ""), dir, units.Int8)
	first.wrote(t)
	for _, tier := range units.VulkanTiers(device) {
		second := loadCachedOn(t, m, vulkanDevice(t, tier), dir, units.Int8)
		second.took(t)
		if !slices.Equal(first.logits, second.logits) {
			t.Errorf("%s: the cache changes logits", tier)
		}
		if second.read > first.read/5 {
			t.Errorf("%s: %d bytes of the model were read again, %d before", tier, second.read, first.read)
		}
	}
	if files := packedFiles(t, dir); len(files) != 1 {
		t.Errorf("the cache holds %q", files)
	}
}

// TestNextOnVulkan: without a recorder, where layers and readout are one program, a device gives the processor's ids: greedy,
// from the most probable tokens and from all, alone and beside other sequences. The models differ in what their readouts have:
// soft caps, projections, norms after the layers.
func TestNextOnVulkan(t *testing.T) {
	vktest.Devices(t)
	for _, name := range []string{"tales-qwen2", "families/gemma2", "families/opt", "families/olmo2", "families/granitemoe"} {
		t.Run(name, func(t *testing.T) { nextOnVulkan(t, openModel(t, name)) })
		if testing.Short() {
			break
		}
	}
}

func nextOnVulkan(t *testing.T, m *inspect.Model) {
	var heads []*stage.Head
	for i, dev := range []units.Device{newDevice(t, 2), vulkanDevice(t, "")} {
		w, err := stage.Load(t.Context(), m, dev, stage.LoadOptions{Range: plan.Range{First: 0, Last: m.Spec.Layers - 1}, Readout: true, Table: i == 1, Context: 80})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		e, err := stage.NewEngine(w, stage.EngineOptions{Context: 80, Sessions: 3})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		h, err := stage.NewHead(w, stage.HeadOptions{Stages: []stage.Stage{e}, Chunk: 48})
		if err != nil {
			t.Fatal(err)
		}
		heads = append(heads, h)
	}
	samplings := []stage.Sampling{{}, {Temperature: 1.5, TopK: 20}, {Temperature: 1.2, TopP: 0.9, RepeatPenalty: 1.1}}
	prompt := familyIDs(m, 60)
	generate := func(h *stage.Head, i int) []int {
		res, err := h.Generate(t.Context(), stage.GenerateOptions{Prompt: prompt[:20*(i+1)], MaxTokens: 8, Sampling: samplings[i]})
		if err != nil {
			t.Error(err)
		}
		return res.IDs
	}
	want := make([][]int, len(samplings))
	for i := range samplings {
		want[i] = generate(heads[0], i)
		if got := generate(heads[1], i); !slices.Equal(got, want[i]) {
			t.Errorf("%+v: ids %v, the processor gives %v", samplings[i], got, want[i])
		}
	}
	var beside sync.WaitGroup
	for i := range samplings {
		beside.Go(func() {
			if got := generate(heads[1], i); !slices.Equal(got, want[i]) {
				t.Errorf("%+v beside others: ids %v, the processor gives %v", samplings[i], got, want[i])
			}
		})
	}
	beside.Wait()
}
