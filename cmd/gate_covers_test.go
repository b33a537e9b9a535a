package cmd

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"dchain/inspect"
	"dchain/plan"
	"dchain/stage"
	"dchain/units"
	"dchain/units/vk/vktest"
)

// coveredModels are models that differ in their operations: biases, norms after too, experts, LayerNorm with and without a norm
// before the feed-forward, and norms of heads. They are tried in both formats, and with DCHAIN_TEST_FAMILIES=all the other families
// in one.
var coveredModels = []string{"qwen2", "gemma2", "mixtral", "phi", "gpt2", "qwen3_moe"}

// TestGatesCoverModels: the gates of a model try every shader that a Vulkan device computes it with, in prompts and steps, greedy and
// not, of one session and of two at once.
func TestGatesCoverModels(t *testing.T) {
	devices := vktest.Devices(t)
	models := coveredModels
	if os.Getenv("DCHAIN_TEST_FAMILIES") == "all" { // minutes
		dirs, err := filepath.Glob("../testdata/families/*")
		if err != nil || len(dirs) < len(models) {
			t.Fatalf("found %d family folders: %v", len(dirs), err)
		}
		models = nil
		for _, dir := range dirs {
			models = append(models, filepath.Base(dir))
		}
	}
	tier := units.VulkanDP4A
	if !slices.Contains(units.VulkanTiers(&devices[0]), tier) {
		if os.Getenv("CI") == "true" {
			t.Fatalf("%s has no units of tier %s", devices[0].Name, tier)
		}
		t.Skipf("%s has no units of tier %s", devices[0].Name, tier)
	}
	// One device for all, so that no shader is compiled twice: what counts is which are recorded.
	dev, err := units.NewVulkan(units.VulkanOptions{Tier: tier, CacheDir: "-"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, name := range models {
		modes := []units.WeightMode{units.Int8}
		if slices.Contains(coveredModels, name) {
			modes = append(modes, units.Int8x2)
		}
		for _, mode := range modes {
			t.Run(fmt.Sprintf("%s/%v", name, mode), func(t *testing.T) { gatesCover(t, dev, name, mode) })
		}
	}
}

// gatesCover gates a device for a model, generates on it, and fails for each shader of the second that was none of the first.
func gatesCover(t *testing.T, dev units.Device, name string, mode units.WeightMode) {
	const promptLen, answerLen, sessions = 70, 6, 2
	m, err := inspect.Open(t.Context(), filepath.Join("../testdata/families", name), inspect.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	positions := min(promptLen+answerLen, m.Spec.MaxPos)
	gated := notedShaders(dev, func() {
		_, err = units.Gate(t.Context(), dev, gateShapes(&m.Spec, mode, true, true, min(positions, headGateContext)))
	})
	if err != nil {
		t.Fatal(err)
	}
	w, err := stage.Load(t.Context(), m, dev, stage.LoadOptions{Range: plan.Range{First: 0, Last: m.Spec.Layers - 1}, Embed: true, Readout: true,
		Table: true, Mode: mode, Context: positions})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	engine, err := stage.NewEngine(w, stage.EngineOptions{Context: positions, Sessions: sessions})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	head, err := stage.NewHead(w, stage.HeadOptions{Stages: []stage.Stage{engine}})
	if err != nil {
		t.Fatal(err)
	}
	prompt := make([]int, positions-answerLen)
	for i := range prompt {
		prompt[i] = 2 + i*i%(m.Spec.Vocab-2)
	}
	generate := func(prompt []int, s stage.Sampling) {
		if _, err := head.Generate(t.Context(), stage.GenerateOptions{Prompt: prompt, MaxTokens: answerLen, Sampling: s}); err != nil {
			t.Error(err)
		}
	}
	used := notedShaders(dev, func() {
		generate(prompt, stage.Sampling{})
		var beside sync.WaitGroup
		for i := range sessions {
			beside.Go(func() { generate(prompt[i:], stage.Sampling{Temperature: 1, TopK: 20, Seed: uint64(i)}) })
		}
		beside.Wait()
	})
	if len(used) == 0 {
		t.Fatal("no shader was recorded")
	}
	for _, shader := range slices.Sorted(maps.Keys(used)) {
		if !gated[shader] {
			t.Errorf("used, but not gated: %s", shader)
		}
	}
}

// notedShaders are the shaders that a Vulkan device records while f runs.
func notedShaders(dev units.Device, f func()) map[string]bool {
	d := dev.(interface{ NoteShaders(use func(shader string)) })
	noted := map[string]bool{}
	d.NoteShaders(func(shader string) { noted[shader] = true })
	defer d.NoteShaders(nil)
	f()
	return noted
}
