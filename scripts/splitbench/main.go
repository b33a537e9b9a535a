// Command splitbench compares the decode speed of a split run with the unsplit one on the same machine, in alternation,
// and exits 1 when the split reaches less than the asked share. Pairs beside which other processes took more than a
// quarter of a core are left out while there are enough others: they compare two different machines.
//
//	go run ./scripts/splitbench -dchain ./dchain -stages 2 -pairs 5 -min 0.9
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
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
	StageMs  []float64 `json:"stage_ms"`
	Others   []float64 `json:"other_processes_cores"` // the larger of the pair's two runs
	Quiet    int       `json:"quiet_pairs"`
	Required float64   `json:"required_ratio"`
}

func run(program, model string, stages, tokens, pairs int, least float64) error {
	r := report{Model: model, Stages: stages, Required: least}
	var quiet []float64
	for try := 0; try < 4*pairs && len(quiet) < pairs; try++ {
		one, err := measure(program, model, 0, tokens)
		if err != nil {
			return err
		}
		two, err := measure(program, model, stages, tokens)
		if err != nil {
			return err
		}
		r.Unsplit, r.Split = append(r.Unsplit, one.rate), append(r.Split, two.rate)
		r.Ratios, r.HopMs, r.StageMs = append(r.Ratios, two.rate/one.rate), append(r.HopMs, two.hop), append(r.StageMs, two.stage)
		others := max(one.others, two.others)
		r.Others = append(r.Others, others)
		if others <= maxOthers {
			quiet = append(quiet, two.rate/one.rate)
		}
	}
	r.Quiet = len(quiet)
	judged := quiet
	if len(quiet) < pairs {
		judged = r.Ratios
	}
	sorted := slices.Sorted(slices.Values(judged))
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

// maxOthers is how much other processes may take of the machine, in cores, beside a pair that counts.
const maxOthers = 0.25

// sample is one run.
type sample struct {
	rate, hop, stage float64 // tokens/s; milliseconds per hop; milliseconds the stages compute per token
	others           float64 // cores that other processes used meanwhile
}

// measure runs one generation.
func measure(program, model string, stages, tokens int) (sample, error) {
	args := []string{"generate", "--model", model, "--ids", "1,2,3,4", "-n", strconv.Itoa(tokens), "--json"}
	if stages > 0 {
		args = append(args, "--spawn", strconv.Itoa(stages))
	}
	c := exec.Command(program, args...)
	start, before := time.Now(), busyTime()
	out, err := c.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		return sample{}, fmt.Errorf("running %v: %w", c.Args, err)
	}
	own := c.ProcessState.UserTime() + c.ProcessState.SystemTime() // the stages, which it waits for, included
	others := (busyTime() - before - own).Seconds() / time.Since(start).Seconds()
	var result struct {
		Timings struct {
			Rate  float64 `json:"tokens_per_second"`
			Hop   float64 `json:"hop_ms"`
			Stage float64 `json:"stage_ms"`
		} `json:"timings"`
	}
	if err := json.Unmarshal(out, &result); err != nil {
		return sample{}, fmt.Errorf("reading the result of %v: %w", c.Args, err)
	}
	if result.Timings.Rate <= 0 {
		return sample{}, fmt.Errorf("%v reports no rate", c.Args)
	}
	t := result.Timings
	return sample{t.Rate, t.Hop, t.Stage, others}, nil
}

// busyTime is the time all processors have spent not idle, 0 where the system does not tell.
func busyTime() time.Duration {
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(data), "\n")
	var ticks int64
	for i, field := range strings.Fields(line)[1:] {
		if i == 3 || i == 4 || i > 7 { // idle, waiting for input, counted elsewhere
			continue
		}
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / 100
}
