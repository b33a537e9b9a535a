package cmd

import (
	"bytes"
	"context"
	"errors"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"dchain/stage"
	"dchain/units"
)

// Kernels that give a wrong bit are left for the next ones, with a word about it; when none is right, nothing runs.
func TestKernelDemotion(t *testing.T) {
	fake, err := units.NewCPU(units.CPUOptions{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer fake.Close()
	for _, c := range []struct {
		name   string
		good   string
		used   string
		said   []string
		failed bool
	}{
		{"the fastest passes", "fast", "fast", nil, false},
		{"one is wrong", "middle", "middle", []string{"the fast kernels are not used, they gave a wrong bit: fast is off", "demoted to middle"}, false},
		{"all are wrong", "", "", []string{"the fast kernels", "the middle kernels", "the slow kernels"}, true},
	} {
		var stderr bytes.Buffer
		a := &app{ui: newUI(&bytes.Buffer{}, &stderr)}
		device, g, err := a.firstPassing([]backend{{name: "fast"}, {name: "middle"}, {name: "slow"}}, func(b backend) (units.Device, kernelGate, error) {
			g := kernelGate{Kernels: b.name, Device: b.name, Wrong: true, Error: b.name + " is off"}
			if b.name != c.good {
				return nil, g, nil
			}
			return fake, g, nil
		})
		if (err != nil) != c.failed || (device == nil) != c.failed || !c.failed && g.Kernels != c.used {
			t.Errorf("%s: %q, %v", c.name, g.Kernels, err)
		}
		for _, s := range c.said {
			if !strings.Contains(stderr.String(), s) {
				t.Errorf("%s: nothing says %q: %s", c.name, s, stderr.String())
			}
		}
		if len(c.said) == 0 && stderr.Len() > 0 {
			t.Errorf("%s: stderr %q", c.name, stderr.String())
		}
		if c.failed && (exitCode(err) != exitFailure || !strings.Contains(err.Error(), "fast is off")) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	boom := errors.New("no memory")
	a := &app{ui: newUI(&bytes.Buffer{}, &bytes.Buffer{})}
	if _, _, err := a.firstPassing([]backend{{name: "fast"}, {name: "slow"}}, func(backend) (units.Device, kernelGate, error) { return nil, kernelGate{}, boom }); err != boom {
		t.Errorf("an error that is no wrong bit: %v", err)
	}
}

// Links look for activations while the device is a GPU, and no longer when another has taken its place.
func TestPollWhileGPU(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(pollCores))
	var gpu atomic.Bool
	if pollWhile(&gpu) != nil {
		t.Error("looks without a GPU")
	}
	gpu.Store(true)
	poll := pollWhile(&gpu)
	if got := poll(); got != pollTime {
		t.Errorf("looks for %v", got)
	}
	gpu.Store(false)
	if got := poll(); got != 0 {
		t.Errorf("looks for %v after the GPU is gone", got)
	}
	gpu.Store(true)
	runtime.GOMAXPROCS(pollCores - 1)
	if pollWhile(&gpu) != nil {
		t.Error("looks without a core to spare")
	}
}

// A stage whose device gave a wrong bit takes the next kernels that pass their gates, and says what it is now, until the
// flags allow no more.
func TestStageDemotion(t *testing.T) {
	kernels := units.CPUKernels()
	var stderr bytes.Buffer
	a := &app{builtin: os.DirFS("../testdata/tales-qwen2"), ui: newUI(&bytes.Buffer{}, &stderr)}
	opts := &stage.ServerOptions{Context: 64, Sessions: 1}
	if err := a.measure(t.Context(), opts, &serveFlags{threads: 1, backendFlags: backendFlags{backend: "cpu", device: firstDevice}}, new(atomic.Bool)); err != nil {
		t.Fatal(err)
	}
	defer func() { opts.Device.Close() }()
	probe := opts.Local.ProbeHash
	for i, name := range kernels {
		if i > 0 {
			device, hello, err := opts.Demote(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if device != opts.Device || hello.Backend != opts.Local.Backend || !strings.Contains(stderr.String(), "demoted to "+hello.Backend+"\n") {
				t.Errorf("demoted to %s, said %q", hello.Backend, stderr.String())
			}
		}
		h := &opts.Local
		if !strings.Contains(h.Backend, name) || h.Backend != opts.Device.Name() || h.ProbeHash != probe || h.CapacityGMACs <= 0 || h.Threads != 1 {
			t.Errorf("with the kernels %s the stage says %+v", name, h)
		}
	}
	if _, _, err := opts.Demote(t.Context()); err == nil || !strings.Contains(err.Error(), "--backend") {
		t.Errorf("after the last kernels: %v", err)
	}
}

// auditedDevice is one whose audits find a wrong bit once a matrix of a name is made.
type auditedDevice struct {
	units.Device
	matrix string
	wrong  atomic.Bool
}

func (d *auditedDevice) NewLinear(name string, n, k int, mode units.WeightMode) (units.Linear, error) {
	if name == d.matrix {
		d.wrong.Store(true)
	}
	return d.Device.NewLinear(name, n, k, mode)
}

func (d *auditedDevice) Compile(p units.Program) (units.Executable, error) {
	e, err := d.Device.Compile(p)
	return auditedExecutable{e, d}, err
}

type auditedExecutable struct {
	units.Executable
	dev *auditedDevice
}

func (e auditedExecutable) Run(rows []units.Row, in, out []float32) error {
	if e.dev.wrong.Load() {
		return &units.AuditError{Op: units.OpLinear}
	}
	return e.Executable.Run(rows, in, out)
}

// A wrong bit that the audits find, in the gates or while the speed is measured, is one like those that the gates find.
func TestAuditDemotion(t *testing.T) {
	for _, matrix := range []string{"gate", "probe"} {
		var stderr bytes.Buffer
		a := &app{ui: newUI(&bytes.Buffer{}, &stderr)}
		opts := &stage.ServerOptions{}
		backendOf := func(name, matrix string) backend {
			return backend{name, func() (units.Device, error) {
				d, err := units.NewCPU(units.CPUOptions{Threads: 1})
				return &auditedDevice{Device: d, matrix: matrix}, err
			}, freeMemory, false, nil}
		}
		left, err := a.takeDevice(t.Context(), opts, []backend{backendOf("fast", matrix), backendOf("slow", ""), backendOf("slower", "")},
			units.GateShapes{Linears: []units.LinearShape{{N: 16, K: 64}}}, new(atomic.Bool))
		if err != nil {
			t.Errorf("wrong in matrices of %q: %v", matrix, err)
			continue
		}
		defer opts.Device.Close()
		if len(left) != 1 || left[0].name != "slower" || !strings.Contains(stderr.String(), "the fast kernels are not used, they gave a wrong bit: ") {
			t.Errorf("wrong in matrices of %q: %d backends are left, said %q", matrix, len(left), stderr.String())
		}
	}
}

// A command that is interrupted while it gates tries no other backend and computes nothing.
func TestGatesAreInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, name := range []string{"generic", vulkanPrefix + "dp4a"} {
		b := cpuBackend("generic", units.CPUOptions{Threads: 1})
		b.name = name
		device, g, err := gateBackend(ctx, b, units.GateShapes{Norms: []int{64}})
		if device != nil || g.Passed || exitCode(err) != exitInterrupted {
			t.Errorf("%s: %+v, %v", name, g, err)
		}
	}
}
