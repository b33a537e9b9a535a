package inspect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
)

// SamplingDefaults are what generation_config.json recommends for drawing tokens. A field that is nil is not stated there.
type SamplingDefaults struct {
	Sample        *bool    `json:"do_sample"`
	Temperature   *float64 `json:"temperature"`
	TopK          *int     `json:"top_k"`
	TopP          *float64 `json:"top_p"`
	MinP          *float64 `json:"min_p"`
	RepeatPenalty *float64 `json:"repetition_penalty"`
}

// SamplingDefaults reads generation_config.json; a model without one states nothing.
func (m *Model) SamplingDefaults(ctx context.Context) (SamplingDefaults, error) {
	var d SamplingDefaults
	data, err := m.Source.ReadFile(ctx, "generation_config.json")
	if errors.Is(err, fs.ErrNotExist) {
		return d, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &d)
	}
	if err != nil {
		return d, fmt.Errorf("reading generation_config.json: %w", err)
	}
	return d, nil
}
