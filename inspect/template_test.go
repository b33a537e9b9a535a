package inspect

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestChatFixtures compares with conversations rendered by transformers.
func TestChatFixtures(t *testing.T) {
	rendered := 0
	for _, dir := range fixtureFolders(t) {
		b, err := os.ReadFile(filepath.Join(dir, "chat.json"))
		if err != nil {
			continue // not every tokenizer has one
		}
		var chats []struct {
			Messages            json.RawMessage
			AddGenerationPrompt bool `json:"add_generation_prompt"`
			Text, Error         string
		}
		if err := json.Unmarshal(b, &chats); err != nil {
			t.Fatal(err)
		}
		template, err := LoadChatTemplate(readFile(t, filepath.Join(dir, "tokenizer_config.json")), nil)
		for _, chat := range chats {
			if chat.Error != "" && strings.Contains(chat.Error, "chat_template is not set") {
				if !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("%s: error %v, want one that says there is no template", dir, err)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			text, err := template.Render(Chat{Messages: chat.Messages, AddGenerationPrompt: chat.AddGenerationPrompt})
			if (err != nil) != (chat.Error != "") || text != chat.Text {
				t.Errorf("%s: %s\nhave %q, %v\nwant %q, %s", dir, chat.Messages, text, err, chat.Text, chat.Error)
			}
			rendered++
		}
	}
	if rendered < 20 && len(fixtureFolders(t)) > 0 {
		t.Errorf("only %d conversations", rendered)
	}
}

func TestChatTemplate(t *testing.T) {
	const hello = `[{"role":"user","content":"hi"}]`
	for _, c := range []struct {
		name, template string
		chat           Chat
		want           string
	}{
		{"last line end", "{{ messages[0].content }}\n", Chat{Messages: []byte(hello)}, "hi"},
		{"line end after a block", "{% if true %}\na\n{% endif %}\nb", Chat{Messages: []byte(hello)}, "a\nb"},
		{"blank before a block", "{%- for m in messages -%}a: {{ m.content }}{%- endfor %}", Chat{Messages: []byte(hello)}, "a: hi"},
		{"special tokens", "{{ bos_token }}{{ eos_token }}", Chat{Messages: []byte(hello)}, "<s></s>"},
		{"parts joined", "{{ 'u' + messages[0]['content'] }}",
			Chat{Messages: []byte(`[{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]`)}, "uab"},
		{"parts kept", "{% if messages[0].content is string %}s{% else %}{{ messages[0].content|length }}{% endif %}",
			Chat{Messages: []byte(`[{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]`)}, "2"},
		{"order of keys, whole numbers", "{{ tools[0] | tojson }}",
			Chat{Messages: []byte(hello), Tools: []byte(`[{"z":1,"a":{"c":2.5,"b":[true,null,"<&>"]}}]`)},
			`{"z": 1, "a": {"c": 2.5, "b": [true, null, "<&>"]}}`},
		{"no tools", "{% if tools %}t{% else %}n{% endif %}", Chat{Messages: []byte(hello)}, "n"},
		{"extra", "{% if enable_thinking is defined and not enable_thinking %}off{% endif %}",
			Chat{Messages: []byte(hello), Extra: map[string]json.RawMessage{"enable_thinking": []byte("false")}}, "off"},
	} {
		config, err := json.Marshal(map[string]any{"chat_template": c.template, "bos_token": "<s>",
			"eos_token": map[string]any{"content": "</s>"}, "pad_token": nil})
		if err != nil {
			t.Fatal(err)
		}
		template, err := LoadChatTemplate(config, nil)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if got, err := template.Render(c.chat); err != nil || got != c.want {
			t.Errorf("%s: %q, %v, want %q", c.name, got, err, c.want)
		}
	}
}

func TestChatTemplateChoice(t *testing.T) {
	chat := Chat{Messages: []byte(`[{"role":"user","content":"hi"}]`)}
	template, err := LoadChatTemplate([]byte(`{"chat_template":[{"name":"default","template":"d"},{"name":"tool_use","template":"t"}]}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := template.Render(chat); got != "d" {
		t.Errorf("without tools: %q", got)
	}
	chat.Tools = []byte("[]")
	if got, _ := template.Render(chat); got != "t" {
		t.Errorf("with tools: %q", got)
	}
	file, err := LoadChatTemplate([]byte(`{"chat_template":"d"}`), []byte("f"))
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := file.Render(chat); got != "f" {
		t.Errorf("with a file of its own: %q", got)
	}
}

func TestChatTemplateErrors(t *testing.T) {
	for _, c := range []struct{ config, messages, want string }{
		{`{`, "", "tokenizer_config.json"},
		{`{"chat_template":null}`, "", "the model has none"},
		{`{"chat_template":7}`, "", "chat template"},
		{`{"chat_template":[{"name":"x","template":"y"}]}`, "", `no "default"`},
		{`{"chat_template":"{% if %}"}`, "", `chat template "default"`},
		{`{"chat_template":"x","bos_token":7}`, "", "bos_token"},
		{`{"chat_template":"x"}`, `{}`, "want a list"},
		{`{"chat_template":"x"}`, `[]`, "want a list"},
		{`{"chat_template":"x"}`, ``, "messages"},
		{`{"chat_template":"x"}`, `[1] 2`, "text after the end"},
		{`{"chat_template":"x"}`, strings.Repeat("[", 200) + strings.Repeat("]", 200), "nested deeper"},
		{`{"chat_template":"{{ raise_exception('roles must alternate') }}"}`, `[{"role":"x"}]`, "roles must alternate"},
	} {
		template, err := LoadChatTemplate([]byte(c.config), nil)
		if err == nil {
			_, err = template.Render(Chat{Messages: []byte(c.messages)})
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s, %.60s: error %v, want one with %q", c.config, c.messages, err, c.want)
		}
	}
}
