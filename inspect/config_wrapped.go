package inspect

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Some models that also see images hold a text model of a known family, with a config of its own within theirs. Text alone
// needs nothing else of them.

// wrappers are the classes of such models.
var wrappers = []string{"Gemma3ForConditionalGeneration", "Mistral3ForConditionalGeneration"}

// outerKeys are what the text model takes from the whole model's config where its own has nothing.
var outerKeys = []string{"bos_token_id", "eos_token_id", "tie_word_embeddings", "quantization_config"}

// sightPrefixes begin the names of tensors that only images need.
var sightPrefixes = []string{
	"vision_tower.", "model.vision_tower.", "multi_modal_projector.", "model.multi_modal_projector.",
}

// textConfig returns the config of the text model within that of a model that also sees images; any other config as it is.
func textConfig(values map[string]json.RawMessage) (map[string]json.RawMessage, bool, error) {
	var architectures []string
	if json.Unmarshal(values["architectures"], &architectures) != nil ||
		!slices.ContainsFunc(architectures, func(a string) bool { return slices.Contains(wrappers, a) }) {
		return values, false, nil
	}
	inner, err := parseObject(values["text_config"])
	if err != nil {
		return nil, false, keyError("text_config", fmt.Errorf("want an object, have %s", clip(values["text_config"])))
	}
	delete(inner, "architectures") // of the text model alone, if anything; model_type tells
	for _, name := range outerKeys {
		if v, ok := values[name]; ok && (inner[name] == nil || isNull(inner[name])) {
			inner[name] = v
		}
	}
	return inner, true, nil
}

// isSight says whether a tensor is of the part that sees.
func (d *draft) isSight(name string) bool {
	return d.wrapped && slices.ContainsFunc(sightPrefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}
