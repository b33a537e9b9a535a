package inspect

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
)

// Values of the Spec's names.
const (
	normRMS     = "rms"
	normLN      = "ln"
	actSiLU     = "silu"
	actGELUTanh = "gelu_tanh"
	actGELU     = "gelu"
	actReLU     = "relu"
	actReLU2    = "relu2"
	layoutOutIn = "out_in"
	layoutInOut = "in_out"
	qkNormHead  = "head"
	qkNormWidth = "width"
	qkvGrouped  = "grouped"
	qkvBlocks   = "blocks"
	alibiPress  = "press"
	alibiMPT    = "mpt"
)

// Upper bounds of config sizes. maxWidth is what an int32 sum of int8 products allows (units/NUMERICS.md section 4);
// the others only keep products of sizes far from overflow.
const (
	maxLayers    = 4096
	maxWidth     = 131071
	maxHeads     = 4096
	maxHeadDim   = 4096
	maxVocab     = 1 << 22
	maxPositions = 1 << 26
	maxExperts   = 1 << 14
)

// family is everything dchain knows about one architecture. Adding a family is adding one of these to families.
type family struct {
	name         string       // model_type
	models       string       // what people call models of the family
	architecture string       // the class with a language-model head
	also         []string     // other names of that class
	base         Spec         // what a config that leaves a key out means
	eos          []int        // the same of eos_token_id
	start        func(*draft) // the same of keys whose values are kept in the draft; may be nil
	keys         map[string]key
	windows      func(d *draft, layer int) bool // layers with a window where no layer_types tell; nil: the family has none
	noRope       func(d *draft, layer int) bool // layers without rotary positions; nil: none
	rope         *ropeParams                    // rotary positions unless config says otherwise; nil: plain ones of base.RopeTheta
	ropeAlpha    bool                           // whether rope type "dynamic" may have "alpha", which sets a fixed base
	original     int                            // original_max_position_embeddings unless config says otherwise; 0: max_position_embeddings
	partial      float64                        // share of a head that is rotated unless config says otherwise; 0: always the whole
	complete     func(*draft) error             // fills what depends on several keys; may be nil

	prefix       string // of tensor names, which files of the bare model leave out
	names        names
	alternatives []names  // other spellings, each taken when the index has its tensors
	bias         []Role   // roles with a bias when there is no index to look it up in
	unused       []string // endings of tensor names that take no part in the computation
}

// families in the order in which messages and documentation list them.
var families = []*family{
	llama, mistral, ministral, ministral3, qwen2, qwen3, gemma, gemma2, gemma3, vaultGemma, phi, phi3, smolLM3,
	olmo, olmo2, olmo3, granite, hyperClovaX, cohere, cohere2, starCoder2, stableLM, glm, glm4, exaone4, ernie45, seedOSS,
	hunyuan, helium, arcee, cwm, nemotron, persimmon, jais2, nanoChat,
	mixtral, qwen3MoE, olmoE, flexOlmo, graniteMoE, graniteMoEShared, hunyuanMoE,
	openAIGPT, gpt2, gptNeo, gptJ, gptNeoX, gptBigCode, codeGen, bloom, opt, bioGPT, falcon, mpt,
}

// Family names a supported architecture.
type Family struct {
	Name         string // model_type of config.json
	Architecture string // the class that config.json names
	Models       string // well-known models of the family
}

// Families lists the supported architectures.
func Families() []Family {
	list := make([]Family, len(families))
	for i, f := range families {
		list[i] = Family{f.name, f.architecture, f.models}
	}
	return list
}

// draft is a Spec while its config is being read.
type draft struct {
	Spec
	fam     *family
	wrapped bool          // the model is the text part of one that also sees images
	bias    map[Role]bool // by config; the index overrules it

	ropes       map[string]ropeParams // from rope_parameters or rope_scaling, by layer type; "" when there is one for all
	theta       float64               // rope_theta; 0: not said
	localTheta  float64               // rope_local_base_freq
	partial     float64               // partial_rotary_factor
	original    int                   // original_max_position_embeddings outside the rope parameters
	layerTypes  []string
	useWindow   bool   // use_sliding_window
	windowFrom  int    // max_window_layers
	scaleEmbed  bool   // scale_embedding
	emptyWindow string // the key that gives a window of 0 positions, which is no window
	period      int    // every so many layers one is of the other kind: sliding_window_pattern, no_rope_layer_interval, ...
	flags       []int  // one number a layer or layer numbers: no_rope_layers, mlp_only_layers
}

// ParseConfig makes a Spec from the bytes of config.json, of generation_config.json (may be nil) and from the tensor
// index. A key that is neither known to the family nor known to be without influence on the logits is an error, since
// ignoring it could change the answer silently; a key whose value is null counts as absent. The index must hold every
// tensor of the model in its right shape and none that is not understood. A nil index stands for a model that has no
// files yet: the family's own layout and biases are taken.
func ParseConfig(config, generation []byte, ix *Index) (Spec, error) {
	spec, err := parseConfig(config, generation, ix)
	if err != nil {
		return Spec{}, fmt.Errorf("reading config: %w", err)
	}
	return spec, nil
}

func parseConfig(config, generation []byte, ix *Index) (Spec, error) {
	values, err := parseObject(config)
	if err != nil {
		return Spec{}, fmt.Errorf("config.json: %w", err)
	}
	values, wrapped, err := textConfig(values)
	if err != nil {
		return Spec{}, err
	}
	fam, err := findFamily(values)
	if err != nil {
		return Spec{}, err
	}
	d := &draft{
		wrapped: wrapped, Spec: fam.base, fam: fam,
		bias: make(map[Role]bool), ropes: make(map[string]ropeParams),
	}
	d.Family, d.names = fam.name, fam.names
	for _, role := range fam.bias {
		d.bias[role] = true
	}
	if fam.start != nil {
		fam.start(d)
	}
	if err := d.readKeys(values); err != nil {
		return Spec{}, err
	}
	if err := d.readGeneration(generation); err != nil {
		return Spec{}, fmt.Errorf("generation_config.json: %w", err)
	}
	if _, said := values["eos_token_id"]; !said && len(d.EOS) == 0 {
		d.EOS = fam.eosWithin(d.Vocab)
	}
	if err := d.finish(); err != nil {
		return Spec{}, err
	}
	if err := d.decide(ix); err != nil {
		return Spec{}, err
	}
	return d.Spec, nil
}

// eosWithin returns the family's own ids that end a sequence, but for those that a cut vocabulary does not have.
func (f *family) eosWithin(vocab int) []int {
	return slices.DeleteFunc(slices.Clone(f.eos), func(id int) bool { return id >= vocab })
}

// parseObject reads a JSON object.
func parseObject(b []byte) (map[string]json.RawMessage, error) {
	var values map[string]json.RawMessage
	if err := json.Unmarshal(b, &values); err != nil {
		return nil, err
	}
	if values == nil {
		return nil, fmt.Errorf("not a JSON object")
	}
	return values, nil
}

// findFamily goes by the architecture class and, where the config names none, by model_type.
func findFamily(values map[string]json.RawMessage) (*family, error) {
	var architectures []string
	var modelType string
	if v, ok := values["architectures"]; ok && !isNull(v) {
		if err := json.Unmarshal(v, &architectures); err != nil {
			return nil, keyError("architectures", err)
		}
	}
	if v, ok := values["model_type"]; ok && !isNull(v) {
		if err := json.Unmarshal(v, &modelType); err != nil {
			return nil, keyError("model_type", err)
		}
	}
	for _, f := range families {
		byClass := slices.ContainsFunc(architectures, func(a string) bool { return a == f.architecture || slices.Contains(f.also, a) })
		if byClass && (modelType == f.name || modelType == "") || len(architectures) == 0 && modelType == f.name {
			return f, nil
		}
	}
	if len(architectures) == 0 && modelType == "" {
		return nil, fmt.Errorf(`config.json names no architecture (keys "architectures" and "model_type")`)
	}
	supported := make([]string, len(families))
	for i, f := range families {
		supported[i] = f.name
	}
	name := strings.Join(architectures, ", ")
	if name == "" {
		name = "?"
	}
	return nil, fmt.Errorf("architecture %q (model_type %q) is not supported; supported model types are %s",
		name, modelType, strings.Join(supported, ", "))
}

func keyError(name string, err error) error { return fmt.Errorf("config key %q: %w", name, err) }

// readKeys gives every key to its reader, in the order of the alphabet so that errors do not vary.
func (d *draft) readKeys(values map[string]json.RawMessage) error {
	sorted := make([]string, 0, len(values))
	for name := range values {
		sorted = append(sorted, name)
	}
	sort.Strings(sorted)
	for _, name := range sorted {
		k, ok := d.fam.keys[name]
		if !ok {
			k, ok = sharedKeys[name]
		}
		if isNull(values[name]) {
			if k.null != nil {
				if err := k.null(d); err != nil {
					return keyError(name, err)
				}
			}
			continue
		}
		if !ok && !isHarmless(name) {
			return fmt.Errorf("config key %q is not understood for %s, refusing to guess", name, d.fam.name)
		}
		if k.read == nil {
			continue
		}
		if err := k.read(d, values[name]); err != nil {
			return keyError(name, err)
		}
	}
	missing := sorted[:0]
	for name, k := range d.fam.keys {
		if v, ok := values[name]; k.required && (!ok || isNull(v)) && (k.size == nil || *k.size(&d.fam.base) == 0) {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("config key %q is missing", slices.Min(missing))
	}
	return nil
}

// readGeneration takes the token ids of generation_config.json; its sampling defaults are not the model's business.
func (d *draft) readGeneration(generation []byte) error {
	if len(generation) == 0 {
		return nil
	}
	values, err := parseObject(generation)
	if err != nil {
		return err
	}
	for _, name := range []string{"bos_token_id", "eos_token_id"} {
		if v, ok := values[name]; ok && !isNull(v) {
			if err := sharedKeys[name].read(d, v); err != nil {
				return keyError(name, err)
			}
		}
	}
	return nil
}

// finish fills what config leaves to other keys and checks how the sizes fit together.
func (d *draft) finish() error {
	s := &d.Spec
	if s.Layers == 0 || s.Hidden == 0 || s.Heads == 0 {
		return fmt.Errorf("config key %q, %q or %q is missing", d.keyOf(&s.Layers), d.keyOf(&s.Hidden), d.keyOf(&s.Heads))
	}
	if s.KVHeads == 0 {
		s.KVHeads = s.Heads
	}
	if s.HeadDim == 0 {
		if s.Hidden%s.Heads != 0 {
			return fmt.Errorf("config key %q: %d is not a multiple of %q, %d",
				d.keyOf(&s.Hidden), s.Hidden, d.keyOf(&s.Heads), s.Heads)
		}
		s.HeadDim = s.Hidden / s.Heads
	}
	if d.fam.complete != nil {
		if err := d.fam.complete(d); err != nil {
			return err
		}
	}
	if s.Heads%s.KVHeads != 0 {
		return fmt.Errorf("config key %q: %d is not a multiple of %q, %d",
			d.keyOf(&s.Heads), s.Heads, d.keyOf(&s.KVHeads), s.KVHeads)
	}
	if q := s.Heads * s.HeadDim; q > maxWidth {
		return fmt.Errorf("config key %q: %d heads of %d values exceed the limit of %d",
			d.keyOf(&s.Heads), s.Heads, s.HeadDim, maxWidth)
	}
	if s.Inter > maxWidth {
		return fmt.Errorf("feed-forward width %d exceeds the limit of %d", s.Inter, maxWidth)
	}
	if s.TopK > s.Experts {
		return fmt.Errorf("%d experts a token of %d experts", s.TopK, s.Experts)
	}
	if err := d.finishWindows(); err != nil {
		return err
	}
	if err := d.finishRope(); err != nil {
		return err
	}
	for _, id := range slices.Concat(s.BOS, s.EOS) {
		if id >= s.Vocab {
			return fmt.Errorf("token id %d of bos_token_id or eos_token_id is beyond %q, %d", id, d.keyOf(&s.Vocab), s.Vocab)
		}
	}
	if s.AttnScale == 0 {
		s.AttnScale = attnScale(s.HeadDim)
	}
	return nil
}

// finishWindows settles which layers have a window: as layer_types say, or else by the family's rule.
func (d *draft) finishWindows() error {
	if d.layerTypes != nil && len(d.layerTypes) != d.Layers {
		return fmt.Errorf("config key \"layer_types\": %d layers are listed, the model has %d", len(d.layerTypes), d.Layers)
	}
	for layer := range d.Layers {
		if d.windowed(layer) {
			if d.Window == 0 {
				return fmt.Errorf("config key %q: 0 is no window, but layer %d has one; null means none", d.emptyWindow, layer)
			}
			d.Windowed = append(d.Windowed, layer)
		}
		if d.layerTypes == nil {
			continue
		}
		switch kind := d.layerTypes[layer]; {
		case kind == layerSliding && d.fam.windows == nil:
			return fmt.Errorf("config key \"layer_types\": layer %d is %q, only %q is supported for %s", layer, kind, layerFull, d.fam.name)
		case kind == layerSliding && d.Window == 0:
			return fmt.Errorf("config key \"layer_types\": layer %d is %q, but no \"sliding_window\" is in force", layer, kind)
		case kind != layerSliding && kind != layerFull:
			return fmt.Errorf("config key \"layer_types\": layer %d is %q, only %q and %q are supported", layer, kind, layerFull, layerSliding)
		}
	}
	if d.Windowed == nil {
		d.Window = 0
	}
	return nil
}

// windowed says whether the layer has a window.
func (d *draft) windowed(layer int) bool {
	if d.fam.windows == nil || d.Window == 0 && d.emptyWindow == "" {
		return false
	}
	if layer < len(d.layerTypes) {
		return d.layerTypes[layer] == layerSliding
	}
	return d.fam.windows(d, layer)
}

// everyLayer is the rule of families whose window, when there is one, is that of all layers.
func everyLayer(*draft, int) bool { return true }

// mostLayers is the rule of families in which the last of every period of layers sees everything.
func mostLayers(d *draft, layer int) bool { return d.period > 0 && (layer+1)%d.period != 0 }

// keyOf names the config key that sets a field, the first in the alphabet.
func (d *draft) keyOf(field *int) string {
	for _, name := range slices.Sorted(maps.Keys(d.fam.keys)) {
		if k := d.fam.keys[name]; k.size != nil && k.size(&d.Spec) == field {
			return name
		}
	}
	return "?"
}
