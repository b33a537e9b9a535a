package cmd

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"dchain/inspect"
)

// tokenizeFlags are the flags of the tokenize command.
type tokenizeFlags struct {
	model   string
	decode  bool
	jsonl   bool
	special bool
}

func (a *app) tokenizeCommand() *cobra.Command {
	var f tokenizeFlags
	c := &cobra.Command{
		Use:   "tokenize [TEXT | IDS | -]",
		Short: "Turn text into token ids and back",
		Long: `tokenize prints the token ids of a text as a comma list, or with --decode the text of a list of ids. Without an argument
it takes standard input, to the last byte. With --jsonl every input line is a JSON string and every output line a JSON
array of ids, or with --decode the other way round.`,
		Example: `  dchain tokenize "Once upon a time"
  dchain tokenize --decode 12,7,99
  dchain tokenize --model ./my-model --jsonl < texts.jsonl > ids.jsonl`,
		Args: atMost(1, "one text"),
		RunE: func(c *cobra.Command, args []string) error {
			if f.jsonl && len(args) > 0 && args[0] != "-" {
				return usageError("--jsonl reads standard input, not an argument")
			}
			tok, err := a.openTokenizer(c.Context(), f.model)
			if err != nil {
				return err
			}
			if f.jsonl {
				return a.tokenizeLines(c.Context(), tok, &f)
			}
			input := firstArg(args)
			if len(args) == 0 || input == "-" {
				data, err := a.readAll()
				if err != nil {
					return err
				}
				input = string(data)
			}
			return a.tokenizeOne(tok, input, &f)
		},
	}
	c.Flags().StringVar(&f.model, "model", "", "the model whose tokenizer to use (default builtin)")
	c.Flags().BoolVar(&f.decode, "decode", false, "turn ids into text")
	c.Flags().BoolVar(&f.jsonl, "jsonl", false, "one JSON value per line, in and out")
	c.Flags().BoolVar(&f.special, "special", false, "encoding: add the tokens the model puts round a text; decoding: show special tokens")
	return c
}

// openTokenizer reads the tokenizer of a model and nothing else of it.
func (a *app) openTokenizer(ctx context.Context, model string) (*inspect.Tokenizer, error) {
	src, err := inspect.OpenSource(ctx, modelName(model), a.inspectOptions())
	if err != nil {
		return nil, err
	}
	defer src.Close()
	tok, err := loadTokenizer(ctx, src)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("model %s has no tokenizer.json", src.Location())
	}
	return tok, err
}

func (a *app) tokenizeOne(tok *inspect.Tokenizer, input string, f *tokenizeFlags) error {
	if f.decode {
		ids, err := parseIDs(input)
		if err == nil {
			err = checkIDs(ids, tok.VocabSize())
		}
		if err != nil {
			return usageError("%w", err)
		}
		return a.ui.printf("%s\n", tok.Decode(ids, !f.special))
	}
	if err := checkText(input); err != nil {
		return usageError("%w", err)
	}
	return a.ui.printf("%s\n", joinIDs(tok.Encode(input, f.special)))
}

// tokenizeLines converts standard input line by line. Empty lines are an error like any line that is not JSON.
func (a *app) tokenizeLines(ctx context.Context, tok *inspect.Tokenizer, f *tokenizeFlags) error {
	in := bufio.NewReaderSize(a.in, 1<<16)
	for n := 1; ; n++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		line, err := in.ReadBytes('\n')
		if err != nil && err != io.EOF {
			return fmt.Errorf("reading standard input: %w", err)
		}
		if len(line) == 0 {
			return nil
		}
		out, convErr := tokenizeLine(tok, bytes.TrimRight(line, "\r\n"), f)
		if convErr != nil {
			return usageError("line %d: %w", n, convErr)
		}
		if err := a.ui.jsonLine(out); err != nil {
			return err
		}
	}
}

func tokenizeLine(tok *inspect.Tokenizer, line []byte, f *tokenizeFlags) (any, error) {
	if err := checkText(string(line)); err != nil {
		return nil, err
	}
	if f.decode {
		var ids []int
		if err := json.Unmarshal(line, &ids); err != nil {
			return nil, fmt.Errorf("not a JSON array of ids: %q", clip(string(line)))
		}
		if err := checkIDs(ids, tok.VocabSize()); err != nil {
			return nil, err
		}
		return tok.Decode(ids, !f.special), nil
	}
	var text string
	if err := json.Unmarshal(line, &text); err != nil {
		return nil, fmt.Errorf("not a JSON string: %q", clip(string(line)))
	}
	if ids := tok.Encode(text, f.special); len(ids) > 0 {
		return ids, nil
	}
	return []int{}, nil
}

// checkText refuses text that is not UTF-8, naming the first wrong byte.
func checkText(s string) error {
	if utf8.ValidString(s) {
		return nil
	}
	at := 0
	for at < len(s) {
		r, size := utf8.DecodeRuneInString(s[at:])
		if r == utf8.RuneError && size == 1 {
			break
		}
		at += size
	}
	return fmt.Errorf("not UTF-8: byte 0x%02x at offset %d", s[at], at)
}

// checkIDs refuses ids outside a vocabulary.
func checkIDs(ids []int, vocab int) error {
	for i, id := range ids {
		if id < 0 || id >= vocab {
			return fmt.Errorf("token id %d (number %d) is outside the vocabulary of %d", id, i+1, vocab)
		}
	}
	return nil
}

func joinIDs(ids []int) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(ids), " ", ","), "[]")
}
