package stage_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"

	"dchain/inspect"
	"dchain/plan"
	"dchain/stage"
	"dchain/transport"
	"dchain/units"
	"dchain/units/vk"
)

// wrongDevice gives a wrong bit from some run on, which its audit finds, or is lost from then on.
type wrongDevice struct {
	units.Device
	left    atomic.Int32 // right runs
	lost    bool
	chained bool // what is wrong are chained dispatches
}

type wrongExecutable struct {
	units.Executable
	dev *wrongDevice
}

func (d *wrongDevice) Compile(p units.Program) (units.Executable, error) {
	e, err := d.Device.Compile(p)
	return wrongExecutable{e, d}, err
}

func (e wrongExecutable) Run(rows []units.Row, in, out []float32) error {
	if err := e.Executable.Run(rows, in, out); err != nil || e.dev.left.Add(-1) >= 0 {
		return err
	}
	if e.dev.lost {
		return fmt.Errorf("running commands on a device: %w", vk.ErrDeviceLost)
	}
	right := out[0]
	out[0] = math.Float32frombits(math.Float32bits(right) ^ 1)
	return &units.AuditError{Op: units.OpAdd, Layer: 5, Got: float64(out[0]), Want: float64(right), Chained: e.dev.chained}
}

// TestDemotion: a wrong bit of a stage ends the ring by name, also the sessions of another head; the next ring is computed
// by the device after it, and a stage without one refuses.
func TestDemotion(t *testing.T) {
	m := openModel(t, "tales-qwen2")
	whole := plan.Range{First: 0, Last: m.Spec.Layers - 1}
	reference, _ := localHead(t, m, localOptions{mode: units.Int8, context: 64, sessions: 1})
	opts := stage.GenerateOptions{Prompt: longPrompt(t, m, 10), MaxTokens: 6}
	want, err := reference.Generate(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	for _, demotes := range []bool{true, false} {
		for _, fixed := range []bool{true, false} {
			c := startCluster(t, m, nil, 2)
			var mu sync.Mutex
			var events []string
			demoted := 0
			rng := whole
			if !fixed {
				rng = plan.None
			}
			c.serve(m, rng, func(o *stage.ServerOptions) {
				o.Event = func(text string) {
					mu.Lock()
					defer mu.Unlock()
					events = append(events, text)
				}
				dev := &wrongDevice{Device: o.Device, chained: fixed}
				dev.left.Store(4)
				o.Device = dev
				if demotes {
					o.Demote = func(context.Context) (units.Device, transport.Hello, error) {
						demoted++
						hello := o.Local
						hello.Backend = "the next best"
						return newDevice(t, 1), hello, nil
					}
				}
			})
			h, _ := c.mustConnect([]plan.Range{whole}, c.options())
			other, _ := c.mustConnect([]plan.Range{whole}, c.options())
			beside, err := other.Open(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := beside.Forward(t.Context(), opts.Prompt); err != nil {
				t.Fatal(err)
			}
			_, err = h.Generate(t.Context(), opts)
			var hop *stage.HopError
			if !errors.As(err, &hop) || hop.Hop != 1 || !strings.Contains(err.Error(), "add of layer 5") || strings.Contains(err.Error(), "chained") != fixed {
				t.Errorf("a wrong bit ends in %v", err)
			}
			// The device is condemned for all heads; this one is a double, which goes on computing wrong bits.
			if _, err := beside.Forward(t.Context(), opts.Prompt[:1]); err == nil || !strings.Contains(err.Error(), "audit") {
				t.Errorf("another head's session ends in %v", err)
			}
			waitFor(t, "the rings to end", func() bool { return c.servers[0].Rings() == 0 })

			o := c.options()
			next, _, err := c.connect([]plan.Range{whole}, o)
			if !demotes {
				if err == nil || !strings.Contains(err.Error(), "not used any more") || !strings.Contains(err.Error(), "--backend") {
					t.Errorf("a stage without another device answers %v", err)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			got, err := next.Generate(t.Context(), opts)
			if err != nil || !slices.Equal(got.IDs, want.IDs) {
				t.Errorf("after the demotion: ids %v, want %v, error %v", got.IDs, want.IDs, err)
			}
			mu.Lock()
			said := slices.DeleteFunc(slices.Clone(events), func(e string) bool { return !strings.Contains(e, "not used any more") })
			mu.Unlock()
			if demoted != 1 || len(said) != 1 {
				t.Errorf("demoted %d times, said %q", demoted, said)
			}
		}
	}
}

// TestLostDevice: a device that is lost, while it computes or while layers are loaded, makes way for the next too.
func TestLostDevice(t *testing.T) {
	m := openModel(t, "tales-qwen2")
	whole := plan.Range{First: 0, Last: m.Spec.Layers - 1}
	before := units.Metrics.Demotions.Load()
	for _, loading := range []bool{false, true} {
		c := startCluster(t, m, nil, 1)
		var devices atomic.Int32
		c.serve(m, plan.None, func(o *stage.ServerOptions) {
			lost := &wrongDevice{Device: o.Device, lost: true}
			lost.left.Store(2)
			o.Device = lost
			if loading {
				o.Device = failingDevice{lost, vk.ErrDeviceLost}
			}
			o.Demote = func(context.Context) (units.Device, transport.Hello, error) {
				devices.Add(1)
				return newDevice(t, 1), o.Local, nil
			}
		})
		opts := stage.GenerateOptions{Prompt: longPrompt(t, m, 10), MaxTokens: 4}
		h, _, err := c.connect([]plan.Range{whole}, c.options())
		if err == nil {
			_, err = h.Generate(t.Context(), opts)
		}
		if err == nil || !strings.Contains(err.Error(), vk.ErrDeviceLost.Error()) {
			t.Errorf("loading %v: %v", loading, err)
		}
		waitFor(t, "the ring to end", func() bool { return c.servers[0].Rings() == 0 })
		next, _ := c.mustConnect([]plan.Range{whole}, c.options())
		if _, err := next.Generate(t.Context(), opts); err != nil || devices.Load() != 1 {
			t.Errorf("loading %v: %v after %d others", loading, err, devices.Load())
		}
	}
	if n := units.Metrics.Demotions.Load() - before; n != 2 {
		t.Errorf("%d demotions are counted", n)
	}
}

// TestFixedLayersFindADevice: a stage whose layers are fixed loads them on the next device where one is lost or has no room.
func TestFixedLayersFindADevice(t *testing.T) {
	m := openModel(t, "tales-qwen2")
	serve := func(errs []error, last units.Device) (*stage.Server, error) {
		opts := stage.ServerOptions{
			Device: failingDevice{newDevice(t, 1), errs[0]},
			Listen: transport.ListenOptions{Addr: "127.0.0.1:0", Identity: newIdentity(t), Authorize: func(transport.PublicKey) bool { return true }},
			Model:  m, Range: plan.Range{First: 0, Last: 7}, Mode: units.Int8, Context: 64, Sessions: 1,
		}
		opts.Demote = func(context.Context) (units.Device, transport.Hello, error) {
			if errs = errs[1:]; len(errs) > 0 {
				return failingDevice{newDevice(t, 1), errs[0]}, opts.Local, nil
			}
			if last == nil {
				return nil, opts.Local, errors.New("--backend allows no other")
			}
			return last, opts.Local, nil
		}
		return stage.NewServer(t.Context(), opts)
	}
	end, cancel := context.WithCancel(t.Context())
	cancel()
	for _, errs := range [][]error{{vk.ErrDeviceLost}, {vk.ErrOutOfMemory, vk.ErrOutOfMemory}} {
		s, err := serve(errs, newDevice(t, 1))
		if err != nil || s.Engine() == nil {
			t.Errorf("after %v: %v", errs, err)
			continue
		}
		if err := s.Run(end); err != nil {
			t.Error(err)
		}
	}
	if _, err := serve([]error{vk.ErrOutOfMemory}, nil); err == nil || !strings.Contains(err.Error(), vk.ErrOutOfMemory.Error()) || !strings.Contains(err.Error(), "no other") {
		t.Errorf("without another device: %v", err)
	}
	damaged := errors.New("a damaged file")
	if _, err := serve([]error{damaged}, newDevice(t, 1)); !errors.Is(err, damaged) {
		t.Errorf("another device does not mend %v, but it gives %v", damaged, err)
	}
}

// failingDevice fails before it has matrices.
type failingDevice struct {
	units.Device
	err error
}

func (d failingDevice) NewLinear(string, int, int, units.WeightMode) (units.Linear, error) {
	return nil, fmt.Errorf("allocating on a device: %w", d.err)
}

// TestDemotionFails: a stage that has no other device says so, and how to go on from then on.
func TestDemotionFails(t *testing.T) {
	m := openModel(t, "tales-qwen2")
	whole := plan.Range{First: 0, Last: m.Spec.Layers - 1}
	c := startCluster(t, m, nil, 1)
	demoted := 0
	c.serve(m, plan.None, func(o *stage.ServerOptions) {
		o.Device = &wrongDevice{Device: o.Device}
		o.Demote = func(context.Context) (units.Device, transport.Hello, error) {
			demoted++
			return nil, transport.Hello{}, errors.New("no other fits")
		}
	})
	for _, want := range []string{"audit of add", "no other fits", "--backend"} { // the first ring is probed
		if _, _, err := c.connect([]plan.Range{whole}, c.options()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
		waitFor(t, "the ring to end", func() bool { return c.servers[0].Rings() == 0 })
	}
	if demoted != 1 {
		t.Errorf("demoted %d times", demoted)
	}
}

// TestDemotionForModel: a device that gives a wrong bit at the shapes of the model that is assigned makes way for the next.
func TestDemotionForModel(t *testing.T) {
	m := openModel(t, "tales-qwen2")
	whole := plan.Range{First: 0, Last: m.Spec.Layers - 1}
	c := startCluster(t, m, nil, 1)
	demoted := 0
	c.serve(nil, plan.None, func(o *stage.ServerOptions) {
		o.OpenModel = func(context.Context, string) (*inspect.Model, error) {
			if demoted < 2 {
				return nil, fmt.Errorf("gating: %w", &units.GateError{Device: "the best"})
			}
			return m, nil
		}
		o.Demote = func(context.Context) (units.Device, transport.Hello, error) {
			demoted++
			return newDevice(t, 1), o.Local, nil
		}
	})
	if _, _, err := c.connect([]plan.Range{whole}, c.options()); err != nil || demoted != 2 {
		t.Errorf("demoted %d times, %v", demoted, err)
	}
}

// slowDevice makes its first matrix when it is told to.
type slowDevice struct {
	units.Device
	matrices atomic.Int32
	begin    func()
}

func (d *slowDevice) NewLinear(name string, n, k int, mode units.WeightMode) (units.Linear, error) {
	if d.matrices.Add(1) == 1 {
		d.begin()
	}
	return d.Device.NewLinear(name, n, k, mode)
}

// TestAssignmentsTakeTurns: heads that come while the stage loads for another use what that one has loaded.
func TestAssignmentsTakeTurns(t *testing.T) {
	m := openModel(t, "tales-qwen2")
	whole := plan.Range{First: 0, Last: m.Spec.Layers - 1}
	var loaded []int32
	for _, heads := range []int{1, 3} {
		c := startCluster(t, m, nil, heads)
		dev := &slowDevice{Device: newDevice(t, 1)}
		dev.begin = func() { waitFor(t, "the heads", func() bool { return c.servers[0].Rings() == heads }) }
		c.serve(m, plan.None, func(o *stage.ServerOptions) { o.Device = dev })
		var all errgroup.Group
		for range heads {
			all.Go(func() error {
				_, _, err := c.connect([]plan.Range{whole}, c.options())
				return err
			})
		}
		if err := all.Wait(); err != nil {
			t.Error(err)
		}
		loaded = append(loaded, dev.matrices.Load())
	}
	if loaded[0] == 0 || loaded[1] != loaded[0] {
		t.Errorf("%d matrices for one head, %d for three at once", loaded[0], loaded[1])
	}
}
