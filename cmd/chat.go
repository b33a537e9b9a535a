package cmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/pflag"

	"dchain/inspect"
	"dchain/stage"
)

// chatMessage is one turn of a conversation, in the order templates print its keys.
type chatMessage struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// chatText renders a conversation of an optional system prompt and one user turn, up to where the answer begins.
func chatText(ctx context.Context, m *inspect.Model, system, user string) (string, error) {
	template, err := loadChatTemplate(ctx, m)
	if err != nil {
		return "", err
	}
	messages := []chatMessage{{"user", user}}
	if system != "" {
		messages = []chatMessage{{"system", system}, {"user", user}}
	}
	raw, err := json.Marshal(messages)
	if err != nil {
		return "", fmt.Errorf("rendering the chat: %w", err)
	}
	text, err := template.Render(inspect.Chat{Messages: raw, AddGenerationPrompt: true})
	if err != nil {
		return "", fmt.Errorf("rendering the chat: %w", err)
	}
	return text, nil
}

func loadChatTemplate(ctx context.Context, m *inspect.Model) (*inspect.ChatTemplate, error) {
	files := map[string][]byte{}
	for _, name := range []string{"tokenizer_config.json", "chat_template.jinja"} {
		data, err := m.Source.ReadFile(ctx, name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		files[name] = data
	}
	template, err := inspect.LoadChatTemplate(files["tokenizer_config.json"], files["chat_template.jinja"])
	if errors.Is(err, fs.ErrNotExist) {
		return nil, usageError("%s has no chat template: it was not made for --chat", m.Source.Location()).
			hint("leave out --chat to continue a text, or use the model's instruct or chat version")
	}
	return template, err
}

// applyDefaults sets the sampling that the model recommends, where no flag says otherwise.
func applyDefaults(s *stage.Sampling, d inspect.SamplingDefaults, flags *pflag.FlagSet) {
	set := func(flag string, apply func()) {
		if !flags.Changed(flag) {
			apply()
		}
	}
	if d.RepeatPenalty != nil {
		set("repeat-penalty", func() { s.RepeatPenalty = *d.RepeatPenalty })
	}
	if d.Sample == nil || !*d.Sample {
		return
	}
	set("temperature", func() {
		s.Temperature = 1
		if d.Temperature != nil {
			s.Temperature = *d.Temperature
		}
	})
	if d.TopK != nil {
		set("top-k", func() { s.TopK = *d.TopK })
	}
	if d.TopP != nil {
		set("top-p", func() { s.TopP = *d.TopP })
	}
	if d.MinP != nil {
		set("min-p", func() { s.MinP = *d.MinP })
	}
}
