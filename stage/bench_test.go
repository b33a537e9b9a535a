package stage_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"dchain/inspect"
	"dchain/plan"
	"dchain/stage"
	"dchain/units"
	"dchain/units/vk/vktest"
)

// timedDevice adds up the time that its programs run.
type timedDevice struct {
	units.Device
	busy atomic.Int64 // nanoseconds
}

type timedExecutable struct {
	units.Executable
	busy *atomic.Int64
}

func (d *timedDevice) Compile(p units.Program) (units.Executable, error) {
	e, err := d.Device.Compile(p)
	return timedExecutable{e, &d.busy}, err
}

func (d *timedDevice) BatchRows() int { return d.Device.(interface{ BatchRows() int }).BatchRows() }

func (e timedExecutable) Run(rows []units.Row, in, out []float32) error {
	start := time.Now()
	defer func() { e.busy.Add(int64(time.Since(start))) }()
	return e.Executable.Run(rows, in, out)
}

// BenchmarkDecode measures a token of sessions that decode at once on a GPU, after 512 positions: all of it, and what the
// device's programs take of it; the rest is embedding, batching and the choice of the token.
//
//	go test ./stage -run - -bench Decode/qwen2.5-0.5b/audit=0/sessions=1 -cpuprofile cpu.out
func BenchmarkDecode(b *testing.B) {
	for _, name := range []string{"qwen2.5-0.5b", "llama-3.1-8b"} {
		for _, audit := range []int{0, 64} {
			b.Run(fmt.Sprintf("%s/audit=%d", name, audit), func(b *testing.B) {
				if vktest.Devices(b)[0].CPU() {
					b.Skip("a software renderer")
				}
				m, err := inspect.Open(context.Background(), "synthetic:"+name, inspect.Options{})
				if err != nil {
					b.Fatal(err)
				}
				defer m.Close()
				dev, err := units.NewVulkan(units.VulkanOptions{AuditEvery: audit, CacheDir: "-"})
				if err != nil {
					b.Fatal(err)
				}
				defer dev.Close()
				timed := &timedDevice{Device: dev}
				const sessions, positions = 64, 1024
				w, err := stage.Load(context.Background(), m, timed, stage.LoadOptions{Range: plan.Range{First: 0, Last: m.Spec.Layers - 1}, Readout: true, Context: positions})
				if err != nil {
					b.Fatal(err)
				}
				defer w.Close()
				e, err := stage.NewEngine(w, stage.EngineOptions{Context: positions, Sessions: sessions})
				if err != nil {
					b.Fatal(err)
				}
				defer e.Close()
				h, err := stage.NewHead(w, stage.HeadOptions{Stages: []stage.Stage{e}})
				if err != nil {
					b.Fatal(err)
				}
				for _, n := range []int{1, sessions} {
					b.Run(fmt.Sprintf("sessions=%d", n), func(b *testing.B) { benchDecode(b, h, timed, n) })
				}
			})
		}
	}
}

// benchDecode decodes rounds of 256 tokens from position 512 on, in every session; the first, in which programs are recorded,
// does not count.
func benchDecode(b *testing.B, h *stage.Head, dev *timedDevice, sessions int) {
	const prompt, round = 512, 256
	ctx := context.Background()
	decode := func() (all, busy time.Duration) {
		seqs := make([]*stage.Sequence, sessions)
		greedy := stage.NewSampler(stage.Sampling{})
		last := make([]int, sessions)
		for i := range seqs {
			var err error
			if seqs[i], err = h.Open(ctx); err != nil {
				b.Fatal(err)
			}
			defer seqs[i].Close()
			ids := make([]int, prompt)
			for k := range ids {
				ids[k] = (i + k) * 7919 % h.Model.Spec.Vocab
			}
			if last[i], err = seqs[i].Next(ctx, ids, greedy, nil, true); err != nil {
				b.Fatal(err)
			}
		}
		start, before := time.Now(), dev.busy.Load()
		var wg sync.WaitGroup
		for i, s := range seqs {
			wg.Go(func() {
				for done := range round {
					var err error
					if last[i], err = s.Next(ctx, []int{last[i]}, greedy, nil, done+1 < round); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		return time.Since(start), time.Duration(dev.busy.Load() - before)
	}
	decode()
	var all, busy time.Duration
	rounds := 0
	for b.Loop() {
		took, used := decode()
		all, busy, rounds = all+took, busy+used, rounds+1
	}
	steps := float64(round * rounds)
	b.ReportMetric(float64(sessions)*steps/all.Seconds(), "tok/s")
	b.ReportMetric(float64(all.Microseconds())/steps, "us/step")
	b.ReportMetric(float64(busy.Microseconds())/steps, "us/step-in-programs")
}
