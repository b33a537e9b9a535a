package stage

import (
	"math"
	"slices"
	"strings"
	"testing"
)

// TestParseScores: what a stage may answer, and that a head takes nothing else from one.
func TestParseScores(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, c := range []struct {
		what       string
		numbers    []float32
		top, vocab int
		fault      string // in the error; "" for none
	}{
		{"one", []float32{1, 7, 0.5}, 1, 10, ""},
		{"more than asked for", []float32{3, 2, 7, 4, 0.5, 0.5, -1}, 2, 10, ""},
		{"all logits for some", []float32{0, 1, 2, 3}, 2, 3, ""},
		{"all logits", []float32{0, 1, 2, 3}, 0, 3, ""},
		{"all of a small vocabulary, out of order", []float32{3, 2, 1, 0, 3, 2, 2}, 50, 3, "order"},
		{"all of a small vocabulary, in order", []float32{3, 2, 0, 1, 3, 2, 1}, 50, 3, ""},
		{"fewer than asked for", []float32{1, 7, 0.5}, 2, 10, "not the scores"},
		{"some for all", []float32{3, 2, 0, 1, 3, 2, 1}, 0, 3, "not the scores"},
		{"more than the vocabulary", []float32{4, 2, 0, 1, 1, 3, 2, 1, 0}, 2, 3, "not the scores"},
		{"too few numbers", []float32{2, 1, 2, 0.5}, 2, 10, "not the scores"},
		{"too few logits", []float32{0, 1, 2}, 0, 3, "not the scores"},
		{"a fraction", []float32{1.5, 1, 0.5}, 1, 10, "not the scores"},
		{"not a number of tokens", []float32{nan, 1, 0.5}, 1, 10, "not the scores"},
		{"infinitely many", []float32{inf, 1, 0.5}, 1, 10, "not the scores"},
		{"fewer than none", []float32{-1, 1, 0.5}, 1, 10, "not the scores"},
		{"a token and a half", []float32{1, 1.5, 0.5}, 1, 10, "token 1.5"},
		{"no token", []float32{1, nan, 0.5}, 1, 10, "token NaN"},
		{"a token beyond the vocabulary", []float32{1, 10, 0.5}, 1, 10, "token 10"},
		{"a negative token", []float32{1, -1, 0.5}, 1, 10, "token -1"},
		{"the same token twice", []float32{3, 4, 2, 4, 3, 2, 1}, 3, 10, "token 4"},
		{"the less probable first", []float32{2, 1, 2, 0.5, 0.6}, 2, 10, "order"},
		{"of equal ones the higher first", []float32{2, 2, 1, 0.5, 0.5}, 2, 10, "order"},
		{"a logit that is no number", []float32{1, 2, nan}, 1, 10, "NaN"},
		{"an infinite logit", []float32{2, 2, 1, inf, 1}, 2, 10, "Inf"},
		{"one of all logits", []float32{0, 1, nan, 3}, 0, 3, "NaN"},
	} {
		s, err := parseScores(c.numbers, c.top, c.vocab)
		switch {
		case c.fault == "" && (err != nil || s.top != int(c.numbers[0]) || !slices.Equal(s.values, c.numbers[1:])):
			t.Errorf("%s: %+v, %v", c.what, s, err)
		case c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault)):
			t.Errorf("%s: %+v, error %v does not say %q", c.what, s, err, c.fault)
		}
	}
}
