package inspect

import (
	"encoding/json"
	"errors"
	"fmt"
)

// templateItem is one place of what surrounds a text: the text itself, or the ids of a special token.
type templateItem struct {
	text bool
	ids  []int
}

// compilePostProcessor reads what is put round every text. ByteLevel only moves offsets, which are not kept.
func compilePostProcessor(v json.RawMessage, depth int) ([]templateItem, error) {
	if isNull(v) {
		return nil, nil
	}
	var p struct {
		Type          string
		Processors    []json.RawMessage
		Single        []map[string]struct{ ID string }
		SpecialTokens map[string]struct{ IDs []int } `json:"special_tokens"`
	}
	if err := json.Unmarshal(v, &p); err != nil {
		return nil, err
	}
	switch p.Type {
	case "ByteLevel":
		return nil, nil
	case "Sequence":
		items, err := flatten(p.Processors, depth, compilePostProcessor)
		if err != nil {
			return nil, err
		}
		if texts := countTexts(items); len(items) > 0 && texts != 1 {
			return nil, fmt.Errorf("the text stands in it %d times", texts)
		}
		return items, nil
	case "TemplateProcessing":
	default:
		return nil, fmt.Errorf("type %q is not supported", p.Type)
	}
	var items []templateItem
	for _, place := range p.Single {
		if s, ok := place["Sequence"]; ok && s.ID == "A" {
			items = append(items, templateItem{text: true})
		} else if s, ok := place["SpecialToken"]; ok {
			special, ok := p.SpecialTokens[s.ID]
			if !ok {
				return nil, fmt.Errorf("special token %q has no ids", s.ID)
			}
			items = append(items, templateItem{ids: special.IDs})
		} else {
			return nil, errors.New("template with a place that is neither text A nor a special token")
		}
	}
	if texts := countTexts(items); texts != 1 {
		return nil, fmt.Errorf("the text stands in the template %d times", texts)
	}
	return items, nil
}

func countTexts(items []templateItem) int {
	n := 0
	for _, item := range items {
		if item.text {
			n++
		}
	}
	return n
}
