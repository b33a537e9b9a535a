// Command splitbench compares the decode speed of a split run with the unsplit one on the same machine, in alternation,
// and exits 1 when the split reaches less than the asked share.
//
//	go run ./scripts/splitbench -dchain ./dchain -stages 2 -pairs 5 -min 0.9
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
)

func main() {
	program := flag.String("dchain", "dchain", "the program to measure")
	model := flag.String("model", "synthetic:qwen2.5-0.5b", "model")
	stages := flag.Int("stages", 2, "stages of the split run, each a process of its own")
	tokens := flag.Int("n", 48, "tokens of a run")
	pairs := flag.Int("pairs", 5, "runs of each kind")
	least := flag.Float64("min", 0.9, "least share of the unsplit rate")
	flag.Parse()
	if err := run(*program, *model, *stages, *tokens, *pairs, *least); err != nil {
		fmt.Fprintln(os.Stderr, "splitbench:", err)
		os.Exit(1)
	}
}

// report is what is printed: rates in decoded tokens per second.
type report struct {
	Model    string    `json:"model"`
	Stages   int       `json:"stages"`
	Unsplit  []float64 `json:"unsplit_tokens_per_second"`
	Split    []float64 `json:"split_tokens_per_second"`
	Ratios   []float64 `json:"ratios"`
	Median   float64   `json:"median_ratio"`
	HopMs    []float64 `json:"hop_ms"`
	Required float64   `json:"required_ratio"`
}

func run(program, model string, stages, tokens, pairs int, least float64) error {
	r := report{Model: model, Stages: stages, Required: least}
	for range pairs {
		one, _, err := measure(program, model, 0, tokens)
		if err != nil {
			return err
		}
		two, hop, err := measure(program, model, stages, tokens)
		if err != nil {
			return err
		}
		r.Unsplit, r.Split = append(r.Unsplit, one), append(r.Split, two)
		r.Ratios, r.HopMs = append(r.Ratios, two/one), append(r.HopMs, hop)
	}
	sorted := slices.Sorted(slices.Values(r.Ratios))
	r.Median = sorted[len(sorted)/2]
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", "  ")
	if err := out.Encode(r); err != nil {
		return err
	}
	if r.Median < least {
		return fmt.Errorf("the split runs at %.3f of the unsplit rate, required is %.3f", r.Median, least)
	}
	return nil
}

// measure runs one generation and returns its decode rate and the milliseconds a hop costs.
func measure(program, model string, stages, tokens int) (rate, hop float64, err error) {
	args := []string{"generate", "--model", model, "--ids", "1,2,3,4", "-n", strconv.Itoa(tokens), "--json"}
	if stages > 0 {
		args = append(args, "--spawn", strconv.Itoa(stages))
	}
	c := exec.Command(program, args...)
	c.Stderr = os.Stderr
	out, err := c.Output()
	if err != nil {
		return 0, 0, fmt.Errorf("running %v: %w", c.Args, err)
	}
	var result struct {
		Timings struct {
			Rate float64 `json:"tokens_per_second"`
			Hop  float64 `json:"hop_ms"`
		} `json:"timings"`
	}
	if err := json.Unmarshal(out, &result); err != nil {
		return 0, 0, fmt.Errorf("reading the result of %v: %w", c.Args, err)
	}
	if result.Timings.Rate <= 0 {
		return 0, 0, fmt.Errorf("%v reports no rate", c.Args)
	}
	return result.Timings.Rate, result.Timings.Hop, nil
}
