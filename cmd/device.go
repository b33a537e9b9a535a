package cmd

import (
	"context"
	"fmt"
	"strings"
	"time"

	"dchain/inspect"
	"dchain/stage"
	"dchain/units"
)

// Positions that the gates of attention fill. The reference they compare with is slow, so a head, which a user waits
// for, tries one prefill of a little more than a block of the cache, a stage several blocks.
const (
	headGateContext  = 80
	stageGateContext = 300
)

// gateShapes are the shapes that a process uses which runs layers, the readout, or both.
func gateShapes(s *inspect.Spec, mode units.WeightMode, layers, readout bool, positions int) units.GateShapes {
	g := units.GateShapes{Norms: []int{s.Hidden}}
	linear := func(n, k int) { g.Linears = append(g.Linears, units.LinearShape{N: n, K: k, Mode: mode}) }
	if readout {
		linear(s.Dims(inspect.RoleLMHead))
		g.Tops = []units.TopShape{{Width: s.Vocab, K: 1}, {Width: s.Vocab, K: min(stage.Candidates, s.Vocab)}}
	}
	if !layers {
		return g
	}
	if readout && s.PlainEmbed() { // a GPU may keep the embedding
		g.Embeds = []int{s.Hidden}
		g.Tops = append(g.Tops, units.TopShape{Width: s.Hidden, K: 1})
	}
	for _, dims := range s.LinearDims() {
		linear(dims[0], dims[1])
	}
	g.Acts = []int{s.Inter}
	g.Heads, g.KVHeads, g.HeadDim, g.RotaryDim = s.Heads, s.KVHeads, s.HeadDim, s.RotaryDim
	g.Interleaved, g.Context = s.RopeInterleaved, min(positions, s.MaxPos)
	g.Cap, g.ALiBi = float32(s.AttnCap), s.ALiBi
	if s.Experts > 0 {
		g.Experts = units.ExpertShape{Count: s.Experts, TopK: s.TopK, Hidden: s.Hidden, Inter: s.ExpertInter, Mode: mode}
	}
	return g
}

// kernelGate is the result of gating one backend.
type kernelGate struct {
	Kernels string           `json:"kernels"` // the backend's name
	Device  string           `json:"device"`
	Passed  bool             `json:"passed"`
	Wrong   bool             `json:"wrong"` // it gave a wrong bit, rather than not working at all
	Error   string           `json:"error,omitempty"`
	Seconds float64          `json:"seconds"`
	report  units.GateReport // what was compared
	memory  func() int64     // backend.memory
	gpu     bool             // backend.gpu
	alike   []int            // backend.alike
}

// gateBackend opens a backend and compares it with the reference. The device is nil unless it passes. An error is one that
// no other backend mends; a Vulkan device that cannot be opened or fails under way is left like one that gives wrong bits.
func gateBackend(ctx context.Context, b backend, shapes units.GateShapes) (units.Device, kernelGate, error) {
	g := kernelGate{Kernels: b.name, Device: b.name, memory: b.memory, gpu: b.gpu, alike: b.alike}
	mend := strings.HasPrefix(b.name, vulkanPrefix)
	device, err := b.open()
	if err != nil {
		if mend {
			g.Error, err = err.Error(), nil
		}
		return nil, g, err
	}
	g.Device = device.Name()
	start := time.Now()
	g.report, err = units.Gate(ctx, device, shapes)
	g.Seconds = time.Since(start).Seconds()
	switch {
	case units.WrongBit(err):
		g.Wrong, g.Error = true, strings.TrimPrefix(err.Error(), "gating "+g.Device+": ")
		return nil, g, device.Close()
	case err != nil:
		device.Close()
		if mend && ctx.Err() == nil {
			g.Error, err = err.Error(), nil
		}
		return nil, g, err
	}
	g.Passed = true
	return device, g, nil
}

// openDevice opens the best backend that the flags allow, that has the memory and that gives the reference's bits at the given
// shapes. Those that do not are reported and not used; without any that does, nothing is computed.
func (a *app) openDevice(ctx context.Context, f *backendFlags, o units.CPUOptions, fits fits, shapes units.GateShapes) (units.Device, kernelGate, error) {
	backends, err := a.backends(f, o, fits)
	if err != nil {
		return nil, kernelGate{}, err
	}
	return a.firstPassing(backends, func(b backend) (units.Device, kernelGate, error) { return gateBackend(ctx, b, shapes) })
}

func (a *app) firstPassing(backends []backend, gate func(backend) (units.Device, kernelGate, error)) (units.Device, kernelGate, error) {
	var first kernelGate
	said := map[string]bool{} // the tiers of a GPU may all fail for one reason
	for i, b := range backends {
		device, g, err := gate(b)
		if err != nil {
			return nil, g, err
		}
		if device != nil {
			if i > 0 {
				units.Metrics.Demotions.Add(1)
				a.ui.noteOnce("demoted to " + g.Device)
			}
			return device, g, nil
		}
		if i == 0 {
			first = g
		}
		switch {
		case g.Wrong:
			a.ui.noteOnce(fmt.Sprintf("the %s kernels are not used, they gave a wrong bit: %s", b.name, g.Error))
		case !said[g.Error]:
			a.ui.noteOnce(fmt.Sprintf("%s is not used: %s", b.name, g.Error))
		}
		said[g.Error] = true
	}
	return nil, first, fmt.Errorf("%s: %s: %s", nothingComputes(first.Wrong), first.Kernels, first.Error)
}

// nothingComputes is what is said where no backend passes: whether the best of them gave a wrong bit, or did not work at all.
func nothingComputes(wrong bool) string {
	if wrong {
		return "nothing here computes right bits"
	}
	return "nothing that --backend and --device allow works here"
}

// scoreOf turns measured int8 multiply-adds per second (in 1e9) into the score of a plan, bytes of weights per second (in
// 1e9): an ordinary activation row has two limbs, so every byte of weights takes part in two multiply-adds.
func scoreOf(gmacs float64) float64 { return gmacs / 2 }
