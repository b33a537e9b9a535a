package units

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"dchain/units/vk"
)

// TestVulkanLink follows where barriers stand and which dispatches await the one before them.
func TestVulkanLink(t *testing.T) {
	// Parts of one buffer: builds without Vulkan may have all buffers in one place.
	buf := &vk.Buffer{}
	a, b, c := vk.Binding{Buffer: buf, Size: 4}, vk.Binding{Buffer: buf, Offset: 4, Size: 4}, vk.Binding{Buffer: buf, Offset: 8, Size: 4}
	const none = uint32(math.MaxUint32)
	r := &recording{exec: &vulkanExecutable{counters: 7}, chain: chain{on: true}}
	for _, s := range []struct {
		name    string
		uses    []access
		barrier bool
		push    []byte // nil for a dispatch that cannot be chained
	}{
		{"the first", []access{read(a), write(b)}, false, pushConstants(0, 0, 0)},
		{"one that reads what it wrote", []access{read(b), write(c)}, false, pushConstants(0, 5, 1)},
		{"one that need not wait", []access{read(a)}, false, pushConstants(1, 5, 2)},
		{"one that reads early what was written", []access{read(c), early(write(b))}, true, pushConstants(0, 0, 3)},
		{"one that reads early what was read", []access{early(read(c)), write(a)}, false, pushConstants(3, 5, 4)},
		{"another kind", []access{read(a)}, true, nil},
		{"one behind another kind", []access{write(a)}, true, pushConstants(0, 0, 5)},
		{"another kind that depends on nothing", []access{write(c)}, false, nil},
		{"one beside another kind", []access{write(b)}, false, pushConstants(0, 0, none)},
		{"one behind both", []access{read(c)}, true, pushConstants(0, 0, 6)},
		{"one without a counter", []access{write(c)}, true, pushConstants(0, 0, none)},
	} {
		barrier, push := r.needsBarrier(s.uses), []byte(nil)
		if s.push != nil {
			barrier, push = r.link(5, s.uses)
		} else {
			r.chain.last = 0
		}
		if barrier != s.barrier || !slices.Equal(push, s.push) {
			t.Errorf("%s: barrier %v, push constants %v, want %v, %v", s.name, barrier, push, s.barrier, s.push)
		}
		if barrier {
			r.pending = nil
		}
		r.pending = append(r.pending, s.uses...)
	}
}

// TestVulkanChains wants of chained dispatches what barriers give, and the same of a device on which they wait in vain.
func TestVulkanChains(t *testing.T) {
	s := layerShapes[0]
	run := func(chained bool, extra int) (out []float32, taken int, notes []string) {
		t.Helper()
		surplus = extra
		defer func() { surplus = 0 }()
		d := vulkanTest(t, VulkanOptions{Note: func(text string) { notes = append(notes, text) }})
		d.unchained.Store(!chained)
		x, err := d.Compile(layersProgram(t, d, s, 1, 256))
		if err != nil {
			t.Fatal(err)
		}
		e := x.(*vulkanExecutable)
		series := gateSeries(9)
		for pos := range 70 {
			in, hidden := series.values(s.hidden, 1), make([]float32, s.hidden)
			if err := e.Run([]Row{{Pos: pos}}, in, hidden); err != nil {
				t.Fatal(err)
			}
			out = append(out, hidden...)
		}
		return out, e.recordings[e.order[len(e.order)-1]].chain.taken, notes
	}
	want, taken, _ := run(false, 0)
	if taken != 0 {
		t.Errorf("%d dispatches are chained on a device on which they are not", taken)
	}
	got, taken, notes := run(true, 0)
	if !slices.Equal(got, want) || taken != 5*s.measured || len(notes) != 0 {
		t.Errorf("%d dispatches are chained, want %d; the same bits: %v; notes %q", taken, 5*s.measured, slices.Equal(got, want), notes)
	}
	got, taken, notes = run(true, 1)
	if !slices.Equal(got, want) || taken != 0 || len(notes) != 1 || !strings.Contains(notes[0], "order") {
		t.Errorf("waiting in vain: %d dispatches are chained still; the same bits: %v; notes %q", taken, slices.Equal(got, want), notes)
	}
}

// TestVulkanChainFails: a dispatch that cannot compute the row is reported from within a chain as with barriers, and holds up none
// after it.
func TestVulkanChainFails(t *testing.T) {
	s := layerShapes[0]
	const layer, context = 20, 256 // operations of the first one
	for _, c := range []struct {
		name  string
		fault func(p *Program, huge func(n int) Vector)
		want  OpKind
	}{
		{"input of the feed-forward", func(p *Program, huge func(n int) Vector) { p.Ops[12].Weight = huge(s.hidden) }, OpQuantize},
		{"input of attention", func(p *Program, huge func(n int) Vector) { p.Ops[layer].Weight = huge(s.hidden) }, OpQuantize},
		{"keys", func(p *Program, huge func(n int) Vector) {
			p.Ops[3].Bias, p.Ops[6].Cos = huge(s.kvHeads*s.headDim), huge(context*s.headDim/2)
		}, OpStoreKV},
		{"queries", func(p *Program, huge func(n int) Vector) { p.Ops[5].Cos = huge(context * s.headDim / 2) }, OpAttend},
	} {
		var errs [2]error
		for i, chained := range []bool{false, true} {
			d := vulkanTest(t, VulkanOptions{Note: func(text string) { t.Errorf("%s: %s", c.name, text) }})
			d.unchained.Store(!chained)
			p := layersProgram(t, d, s, 1, context)
			c.fault(&p, func(n int) Vector {
				v, err := d.NewVector("huge", slices.Repeat([]float32{3e38}, n))
				if err != nil {
					t.Fatal(err)
				}
				return v
			})
			e, err := d.Compile(p)
			if err != nil {
				t.Fatal(err)
			}
			series := gateSeries(9)
			errs[i] = e.Run([]Row{{}}, series.values(s.hidden, 1000), make([]float32, s.hidden))
			var oe *OpError
			if !errors.As(errs[i], &oe) || oe.Op != c.want {
				t.Errorf("%s, chained %v: %v, want an error of %s", c.name, chained, errs[i], c.want)
			}
		}
		if fmt.Sprint(errs[0]) != fmt.Sprint(errs[1]) {
			t.Errorf("%s: chained %v, with barriers %v", c.name, errs[1], errs[0])
		}
	}
}
