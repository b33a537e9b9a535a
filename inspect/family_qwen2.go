package inspect

// qwen2 is Qwen2 and Qwen2.5 (dense): Llama with biases on Q, K and V, which no config key announces.
var qwen2 = &family{
	name:         "qwen2",
	models:       "Qwen2, Qwen2.5",
	architecture: "Qwen2ForCausalLM",
	base:         qwenBase,
	keys:         qwenKeys,
	start:        qwenStart,
	windows:      upperLayers,
	complete:     qwenWindow,
	prefix:       "model.",
	names:        llamaNames,
	bias:         []Role{RoleQ, RoleK, RoleV},
}

var qwenBase = llamaBase.base(func(s *Spec) { s.KVHeads, s.MaxPos, s.Window = 32, 32768, 4096 })

var qwenKeys = keyTable(modernKeys, ropeKeys, windowKeys, map[string]key{
	"rms_norm_eps": epsKey,
	"use_mrope":    onlyKey("false"),
})

// qwenStart: a config that leaves max_window_layers out means 28, whatever the number of layers.
func qwenStart(d *draft) { d.windowFrom = 28 }

// upperLayers have the window from layer max_window_layers on.
func upperLayers(d *draft, layer int) bool { return layer >= d.windowFrom }

// qwenWindow: without use_sliding_window a window is stated, but not in force.
func qwenWindow(d *draft) error {
	if !d.useWindow {
		d.Window, d.emptyWindow = 0, ""
	}
	return nil
}
