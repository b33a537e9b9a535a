// Command cpubench measures what docs/BENCHMARKS.md says of the CPU, and, beside it in the same minutes, llama.cpp on the
// same shape where its llama-bench and a GGUF file of random weights are given. It prints one line per figure: the median
// and all values over the rounds.
//
//	go run ./scripts/cpubench -dchain ./dchain -part decode,prefill -rounds 5 \
//	    -peer llama-bench -peer-model qwen2.5-0.5b-q8_0.gguf
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
)

const model = "synthetic:qwen2.5-0.5b"

// bench holds what all measurements share.
type bench struct {
	dchain, peer, peerModel string
	figures                 map[string][]float64
	order                   []string
}

// parts are the groups of figures; each runs once a round.
var parts = map[string]func(*bench) error{
	"speed":    (*bench).speed,
	"context":  (*bench).context,
	"int8x2":   (*bench).int8x2,
	"sessions": (*bench).sessions,
	"company":  (*bench).company,
	"first":    (*bench).first,
	"8b":       (*bench).big,
}

func main() {
	b := bench{figures: map[string][]float64{}}
	names := slices.Sorted(maps.Keys(parts))
	flag.StringVar(&b.dchain, "dchain", "dchain", "the program to measure")
	flag.StringVar(&b.peer, "peer", "", "llama-bench")
	flag.StringVar(&b.peerModel, "peer-model", "", "GGUF file of the same shape")
	rounds := flag.Int("rounds", 5, "rounds")
	part := flag.String("part", "speed", "of "+strings.Join(names, ","))
	flag.Parse()
	if err := b.run(strings.Split(*part, ","), *rounds); err != nil {
		fmt.Fprintln(os.Stderr, "cpubench:", err)
		os.Exit(1)
	}
}

func (b *bench) run(names []string, rounds int) error {
	for range rounds {
		for _, name := range names {
			f, ok := parts[name]
			if !ok {
				return fmt.Errorf("no part %q", name)
			}
			if err := f(b); err != nil {
				return err
			}
		}
	}
	for _, name := range b.order {
		v := slices.Sorted(slices.Values(b.figures[name]))
		fmt.Printf("%-44s %9.2f  %.2f\n", name, (v[(len(v)-1)/2]+v[len(v)/2])/2, v)
	}
	return nil
}

func (b *bench) add(name string, v float64) {
	if _, ok := b.figures[name]; !ok {
		b.order = append(b.order, name)
	}
	b.figures[name] = append(b.figures[name], v)
}

// result is a line of dchain bench.
type result struct {
	Threads   int      `json:"threads"`
	Prefill   float64  `json:"prefill_tokens_per_second"`
	Decode    float64  `json:"decode_tokens_per_second"`
	Share     *float64 `json:"bandwidth_share"`
	Bandwidth float64  `json:"bandwidth_gbps"`
	Peak      int64    `json:"peak_memory_bytes"`
}

// ours runs dchain bench on the CPU.
func (b *bench) ours(args ...string) ([]result, error) {
	if !slices.Contains(args, "--model") {
		args = append(args, "--model", model)
	}
	out, err := output(b.dchain, append([]string{"bench", "--json", "--backend", "cpu", "--repeat", "1"}, args...)...)
	if err != nil {
		return nil, err
	}
	var r struct {
		Results []result `json:"results"`
	}
	if err := json.Unmarshal(out, &r); err != nil || len(r.Results) == 0 {
		return nil, fmt.Errorf("reading the result of dchain bench %v: %v", args, err)
	}
	return r.Results, nil
}

func output(program string, args ...string) ([]byte, error) {
	out, err := exec.Command(program, args...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("%w: %s", err, exit.Stderr)
	}
	if err != nil {
		return nil, fmt.Errorf("running %s %v: %w", program, args, err)
	}
	return out, nil
}

// theirs runs the peer once and returns its rate.
func (b *bench) theirs(args ...string) (float64, error) {
	out, err := output(b.peer, append([]string{"-m", b.peerModel, "-r", "1", "-o", "json"}, args...)...)
	if err != nil {
		return 0, err
	}
	var r []struct {
		Rate float64 `json:"avg_ts"`
	}
	if err := json.Unmarshal(out, &r); err != nil || len(r) != 1 {
		return 0, fmt.Errorf("reading the peer's result of %v: %d results, %v", args, len(r), err)
	}
	return r[0].Rate, nil
}

// speed: prefill of 512 tokens, decode at a context of about 128, with one and two threads, and the peer's.
func (b *bench) speed() error {
	for threads := 1; threads <= 2; threads++ {
		t := strconv.Itoa(threads)
		pre, err := b.ours("--threads", t, "-p", "512", "-n", "1")
		if err != nil {
			return err
		}
		dec, err := b.ours("--threads", t, "-p", "64", "-n", "128")
		if err != nil {
			return err
		}
		b.add("prefill 512, threads "+t, pre[0].Prefill)
		b.add("decode at 128, threads "+t, dec[0].Decode)
		b.add("bandwidth GB/s, threads "+t, dec[0].Bandwidth)
		b.add("decode share of bandwidth, threads "+t, *dec[0].Share)
		b.add("peak MiB, threads "+t, float64(pre[0].Peak)/(1<<20))
		if b.peer == "" {
			continue
		}
		theirPre, err := b.theirs("-t", t, "-p", "512", "-n", "0")
		if err != nil {
			return err
		}
		theirDec, err := b.theirs("-t", t, "-p", "0", "-n", "128", "-d", "64")
		if err != nil {
			return err
		}
		b.add("peer prefill 512, threads "+t, theirPre)
		b.add("prefill ratio, threads "+t, pre[0].Prefill/theirPre)
		b.add("peer decode, threads "+t, theirDec)
		b.add("decode ratio, threads "+t, dec[0].Decode/theirDec)
	}
	return nil
}

// context: prefill and decode at 4,096 beside those at 512 and 128.
func (b *bench) context() error {
	long, err := b.ours("--threads", "2", "-p", "4064", "-n", "32")
	if err != nil {
		return err
	}
	short, err := b.ours("--threads", "2", "-p", "512", "-n", "1", "--repeat", "3") // it takes little time
	if err != nil {
		return err
	}
	decode, err := b.ours("--threads", "2", "-p", "112", "-n", "32")
	if err != nil {
		return err
	}
	b.add("prefill 4064", long[0].Prefill)
	b.add("decode at 4096", long[0].Decode)
	b.add("prefill 4064 of 512", long[0].Prefill/short[0].Prefill)
	b.add("decode at 4096 of 128", long[0].Decode/decode[0].Decode)
	return nil
}

// int8x2: decode with two limbs per weight beside one.
func (b *bench) int8x2() error {
	one, err := b.ours("--threads", "2", "-p", "64", "-n", "64")
	if err != nil {
		return err
	}
	two, err := b.ours("--threads", "2", "-p", "64", "-n", "64", "--weights", "int8x2")
	if err != nil {
		return err
	}
	b.add("decode int8x2", two[0].Decode)
	b.add("decode int8x2 of int8", two[0].Decode/one[0].Decode)
	return nil
}

// sessions: eight at once, in one process and in two stages of one thread each.
func (b *bench) sessions() error {
	one, err := b.ours("--threads", "2", "-p", "64", "-n", "96")
	if err != nil {
		return err
	}
	eight, err := b.ours("--threads", "2", "-p", "64", "-n", "96", "--sessions", "8")
	if err != nil {
		return err
	}
	split, err := b.ours("--threads", "1", "--spawn", "1", "--layers", "0-9", "-p", "64", "-n", "96", "--sessions", "8")
	if err != nil {
		return err
	}
	b.add("decode, 8 sessions", eight[0].Decode)
	b.add("decode, 8 sessions of 1", eight[0].Decode/one[0].Decode)
	b.add("decode, 8 sessions, 2 processes", split[0].Decode)
	b.add("decode, 2 processes of 1", split[0].Decode/eight[0].Decode)
	b.add("prefill, 2 processes of 1", split[0].Prefill/eight[0].Prefill)
	return nil
}

// company: decode beside a process that keeps one core busy.
func (b *bench) company() error {
	quiet, err := b.ours("--threads", "2", "-p", "16", "-n", "96")
	if err != nil {
		return err
	}
	busy := exec.Command("sh", "-c", "while :; do :; done")
	if err := busy.Start(); err != nil {
		return err
	}
	beside, err := b.ours("--threads", "2", "-p", "16", "-n", "96")
	if err := errors.Join(busy.Process.Kill(), err); err != nil {
		return err
	}
	_ = busy.Wait() // it was killed
	b.add("decode beside a busy process", beside[0].Decode)
	b.add("decode beside a busy process of alone", beside[0].Decode/quiet[0].Decode)
	return nil
}

// first: seconds from process start to the end of a run that gives the first token of a 512-token prompt, weights cached.
func (b *bench) first() error {
	ids := make([]string, 512)
	for i := range ids {
		ids[i] = strconv.Itoa(1000 + 7*i)
	}
	start := time.Now()
	_, err := output(b.dchain, "generate", "--backend", "cpu", "--cache", "--threads", "2", "--model", model, "--ids", strings.Join(ids, ","), "-n", "1")
	if err != nil {
		return err
	}
	b.add("first token, seconds", time.Since(start).Seconds())
	return nil
}

// big: the 8B shape.
func (b *bench) big() error {
	r, err := b.ours("--model", "synthetic:llama-3.1-8b", "--threads", "2", "-p", "32", "-n", "16")
	if err != nil {
		return err
	}
	b.add("8B decode", r[0].Decode)
	b.add("8B decode share of bandwidth", *r[0].Share)
	b.add("8B peak MiB", float64(r[0].Peak)/(1<<20))
	return nil
}
