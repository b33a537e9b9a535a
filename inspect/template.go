package inspect

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/ardanlabs/jinja"
)

// ChatTemplate turns conversations into the text a model was trained on, as transformers' apply_chat_template does. It
// is safe for concurrent use.
type ChatTemplate struct {
	byName map[string]namedTemplate // "default", and where a model has several also "tool_use" and others
	tokens map[string]jinja.Value   // bos_token and the other special tokens that are set
}

type namedTemplate struct {
	compiled *jinja.Template
	parts    bool // whether it can take content that is a list of parts
}

// Chat is what a template is rendered for. Messages and tools are the JSON of the chat API of OpenAI and many others;
// the order of their keys is kept, since templates print them.
type Chat struct {
	Messages            json.RawMessage // [{"role": ..., "content": ...}, ...]
	Tools               json.RawMessage // nil: none
	AddGenerationPrompt bool            // end with the beginning of the assistant's answer
	// Extra variables that some templates read, such as enable_thinking.
	Extra map[string]json.RawMessage
}

// LoadChatTemplate reads the template from chat_template.jinja (may be nil) or else from tokenizer_config.json, which
// also holds the special tokens. A model without a template is an error that is fs.ErrNotExist.
func LoadChatTemplate(tokenizerConfigJSON, jinjaFile []byte) (*ChatTemplate, error) {
	var config map[string]json.RawMessage
	if len(tokenizerConfigJSON) > 0 {
		if err := json.Unmarshal(tokenizerConfigJSON, &config); err != nil {
			return nil, fmt.Errorf("reading tokenizer_config.json: %w", err)
		}
	}
	sources, err := templateSources(config["chat_template"], jinjaFile)
	if err != nil {
		return nil, fmt.Errorf("reading chat template: %w", err)
	}
	c := &ChatTemplate{byName: make(map[string]namedTemplate)}
	for name, source := range sources {
		compiled, err := jinja.Compile(prepareTemplate(source))
		if err != nil {
			return nil, fmt.Errorf("reading chat template %q: %w", name, err)
		}
		c.byName[name] = namedTemplate{compiled, takesParts(source)}
	}
	if c.tokens, err = specialTokens(config); err != nil {
		return nil, fmt.Errorf("reading tokenizer_config.json: %w", err)
	}
	return c, nil
}

// templateSources returns the templates by name: a text is the default one, a list has names.
func templateSources(v json.RawMessage, jinjaFile []byte) (map[string]string, error) {
	if len(jinjaFile) > 0 {
		return map[string]string{"default": string(jinjaFile)}, nil
	}
	if isNull(v) {
		return nil, fmt.Errorf("the model has none: %w", fs.ErrNotExist)
	}
	if v[0] == '"' {
		var source string
		err := json.Unmarshal(v, &source)
		return map[string]string{"default": source}, err
	}
	var list []struct{ Name, Template string }
	if err := json.Unmarshal(v, &list); err != nil {
		return nil, err
	}
	sources := make(map[string]string, len(list))
	for _, t := range list {
		sources[t.Name] = t.Template
	}
	if _, ok := sources["default"]; !ok {
		return nil, errors.New(`among several there is no "default"`)
	}
	return sources, nil
}

// prepareTemplate works round what the engine does differently. One line end at the end of a template does not count.
// A dash that strips white space to its left makes the engine strip from the output as well when there is none in the
// template; without such white space the dash means nothing and can go.
func prepareTemplate(source string) string {
	source = strings.TrimSuffix(source, "\n")
	return strings.NewReplacer(
		"}}{%-", "}}{%", "%}{%-", "%}{%",
		"}}{{-", "}}{{", "%}{{-", "%}{{",
	).Replace(source)
}

// takesParts guesses whether a template looks at the kind of a message's content.
func takesParts(source string) bool {
	return slices.ContainsFunc([]string{"is string", "is not string", "is iterable", "is sequence", "is mapping"},
		func(test string) bool { return strings.Contains(source, test) })
}

// specialTokens reads bos_token and its like, each a text or an object with one.
func specialTokens(config map[string]json.RawMessage) (map[string]jinja.Value, error) {
	tokens := make(map[string]jinja.Value)
	for _, name := range []string{"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"} {
		v := config[name]
		if isNull(v) {
			continue
		}
		var token struct{ Content string }
		var err error
		if v[0] == '"' {
			err = json.Unmarshal(v, &token.Content)
		} else {
			err = json.Unmarshal(v, &token)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		tokens[name] = jinja.NewString(token.Content)
	}
	return tokens, nil
}

// Render returns the text of a conversation. What the template raises is an error.
func (c *ChatTemplate) Render(chat Chat) (string, error) {
	template := c.byName["default"]
	if t, ok := c.byName["tool_use"]; ok && !isNull(chat.Tools) {
		template = t
	}
	vars := make(map[string]jinja.Value, len(c.tokens)+len(chat.Extra)+4)
	for name, v := range c.tokens {
		vars[name] = v
	}
	for name, v := range chat.Extra {
		value, err := orderedValue(v)
		if err != nil {
			return "", fmt.Errorf("reading %s of a chat: %w", name, err)
		}
		vars[name] = value
	}
	messages, err := orderedValue(chat.Messages)
	if err != nil {
		return "", fmt.Errorf("reading the messages of a chat: %w", err)
	}
	if !messages.IsList() || len(messages.AsList().Items) == 0 {
		return "", errors.New("reading the messages of a chat: want a list that is not empty")
	}
	if !template.parts {
		for _, m := range messages.AsList().Items {
			flattenParts(m)
		}
	}
	tools := jinja.None()
	if !isNull(chat.Tools) {
		if tools, err = orderedValue(chat.Tools); err != nil {
			return "", fmt.Errorf("reading the tools of a chat: %w", err)
		}
	}
	vars["messages"], vars["tools"], vars["documents"] = messages, tools, jinja.None()
	vars["add_generation_prompt"] = jinja.NewBool(chat.AddGenerationPrompt)
	text, err := template.compiled.RenderValues(vars)
	if err != nil {
		return "", fmt.Errorf("rendering the chat template: %w", err)
	}
	return text, nil
}

// flattenParts makes a message's content one text when it is a list of texts and the template expects none.
func flattenParts(message jinja.Value) {
	if !message.IsDict() {
		return
	}
	content, ok := message.AsDict().Get("content")
	if !ok || !content.IsList() {
		return
	}
	var text strings.Builder
	for _, part := range content.AsList().Items {
		if !part.IsDict() {
			return
		}
		t, ok := part.AsDict().Get("text")
		if !ok || !t.IsString() {
			return
		}
		text.WriteString(t.AsString())
	}
	message.AsDict().Set("content", jinja.NewString(text.String()))
}

// orderedValue parses JSON keeping the order of keys, and whole numbers whole.
func orderedValue(v json.RawMessage) (jinja.Value, error) {
	d := json.NewDecoder(bytes.NewReader(v))
	d.UseNumber()
	value, err := decodeValue(d, 0)
	if err != nil {
		return jinja.None(), err
	}
	if _, err := d.Token(); err != io.EOF {
		return jinja.None(), errors.New("text after the end of the JSON value")
	}
	return value, nil
}

func decodeValue(d *json.Decoder, depth int) (jinja.Value, error) {
	const deepest = 100
	if depth > deepest {
		return jinja.None(), fmt.Errorf("nested deeper than %d", deepest)
	}
	token, err := d.Token()
	if err != nil {
		return jinja.None(), err
	}
	switch v := token.(type) {
	case string:
		return jinja.NewString(v), nil
	case bool:
		return jinja.NewBool(v), nil
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return jinja.NewInt(n), nil
		}
		f, err := v.Float64()
		return jinja.NewFloat(f), err
	case json.Delim:
		if v == '[' {
			return decodeList(d, depth)
		}
		return decodeDict(d, depth)
	}
	return jinja.None(), nil
}

func decodeList(d *json.Decoder, depth int) (jinja.Value, error) {
	var items []jinja.Value
	for d.More() {
		item, err := decodeValue(d, depth+1)
		if err != nil {
			return jinja.None(), err
		}
		items = append(items, item)
	}
	_, err := d.Token()
	return jinja.NewList(items), err
}

func decodeDict(d *json.Decoder, depth int) (jinja.Value, error) {
	dict := jinja.NewDict()
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return jinja.None(), err
		}
		value, err := decodeValue(d, depth+1)
		if err != nil {
			return jinja.None(), err
		}
		dict.AsDict().Set(key.(string), value)
	}
	_, err := d.Token()
	return dict, err
}
