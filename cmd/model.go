package cmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"dchain/inspect"
)

// openModel opens a model by name; "" is the built-in one.
func (a *app) openModel(ctx context.Context, name string) (*inspect.Model, error) {
	return inspect.Open(ctx, modelName(name), a.inspectOptions())
}

func modelName(name string) string {
	if name == "" {
		return "builtin"
	}
	return name
}

func (a *app) inspectOptions() inspect.Options {
	return inspect.Options{
		Builtin: a.builtin,
		OnRetry: func(r inspect.Retry) { a.ui.note("trying again in %.1f s: %v", r.Wait.Seconds(), r.Err) },
	}
}

// packedFolder is where --cache keeps weights, "" without it.
func (a *app) packedFolder(cache bool) (string, error) {
	if !cache {
		return "", nil
	}
	return inspect.PackedFolder(a.inspectOptions())
}

// loadTokenizer reads a model's tokenizer. A model without one is a fs.ErrNotExist.
func loadTokenizer(ctx context.Context, src inspect.Source) (*inspect.Tokenizer, error) {
	tokenizer, config, err := readTokenizer(ctx, src)
	if err != nil {
		return nil, err
	}
	return inspect.LoadTokenizer(tokenizer, config)
}

// readTokenizer fetches the files of a model's tokenizer, the second of which may not exist.
func readTokenizer(ctx context.Context, src inspect.Source) (tokenizer, config []byte, err error) {
	if tokenizer, err = src.ReadFile(ctx, "tokenizer.json"); err != nil {
		return nil, nil, fmt.Errorf("reading the tokenizer: %w", err)
	}
	if config, err = src.ReadFile(ctx, "tokenizer_config.json"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("reading the tokenizer: %w", err)
	}
	return tokenizer, config, nil
}

// parseIDs reads token ids separated by commas or white space, with or without brackets.
func parseIDs(s string) ([]int, error) {
	text := strings.TrimSpace(s)
	if inner, ok := strings.CutPrefix(text, "["); ok {
		if inner, ok = strings.CutSuffix(inner, "]"); !ok {
			return nil, fmt.Errorf("bad token ids %q: a bracket is not closed", clip(s))
		}
		text = inner
	}
	fields := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(", \t\r\n", r) })
	ids := make([]int, len(fields))
	for i, f := range fields {
		id, err := strconv.ParseInt(f, 10, 32)
		if err != nil || id < 0 {
			return nil, fmt.Errorf("bad token id %q: want whole numbers such as 1,2,3", clip(f))
		}
		ids[i] = int(id)
	}
	return ids, nil
}

// clip shortens text quoted in an error.
func clip(s string) string {
	const most = 60
	if runes := []rune(s); len(runes) > most {
		return string(runes[:most]) + "..."
	}
	return s
}
