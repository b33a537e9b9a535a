package plan

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// near compares within a billionth.
func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*math.Max(math.Abs(a), math.Abs(b)) }

func TestPredict(t *testing.T) {
	need := Need{
		Layers: 10, Limbs: 1, Layer: Tensors{Weights: 100e6}, Head: Tensors{Weights: 200e6, Raw: 400e6},
		KVPosition: 1000, Context: 2000, Sessions: 4,
	}
	links := []Link{{1e-3, 1e-4}, {2e-3, 2e-4}, {3e-3, 3e-4}}
	for _, c := range []struct {
		name             string
		stages           []Stage
		links            []Link
		compute, network float64
	}{
		// 10 layers of 100 MB and 1 MB of cache, 200 MB of readout; the embedding's rows are not read.
		{"head alone", []Stage{{Head: true, Range: Range{0, 9}, Score: 10}}, links, 1.21e9 / 10e9, 0},
		{"two stages", []Stage{{Head: true, Range: Range{0, 1}, Score: 10}, {Range: Range{2, 9}, Score: 20}}, links,
			(200e6+202e6)/10e9 + 808e6/20e9, 3.3e-3},
		{"head without layers", []Stage{{Head: true, Range: None, Score: 10}, {Range: Range{0, 9}, Score: 20}}, links,
			200e6/10e9 + 1010e6/20e9, 3.3e-3},
		{"three stages", []Stage{{Head: true, Range: None, Score: 1}, {Range: Range{0, 4}, Score: 1}, {Range: Range{5, 9}, Score: 1}}, links,
			1.21, 6.6e-3},
		{"unmeasured links", []Stage{{Head: true, Range: None, Score: 1}, {Range: Range{0, 9}, Score: 1}}, nil,
			1.21, 2 * (LAN.OneWay + LAN.Protocol)},
	} {
		p, err := Predict(need, c.stages, c.links)
		if err != nil || !near(p.ComputeSeconds, c.compute) || !near(p.NetworkSeconds, c.network) ||
			!near(p.TokensPerSecond, 1/(c.compute+c.network)) || p.Stages != len(c.stages) {
			t.Errorf("%s: got %+v, %v; want compute %v, network %v", c.name, p, err, c.compute, c.network)
		}
	}

	if p, err := Predict(need, []Stage{{Name: "a", Head: true, Range: Range{0, 9}}}, nil); err == nil {
		t.Errorf("a stage without score is predicted: %+v", p)
	}
	if p, err := Predict(need, nil, nil); err == nil {
		t.Errorf("no stages are predicted: %+v", p)
	}
}

// A faster device or a faster link never makes the prediction worse, and one more hop never makes it better when the
// devices are alike.
func TestPredictMonotonic(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	need := mib(32)
	for range 1000 {
		n := 2 + rng.IntN(6)
		var devices []Device
		for i := range n {
			d := device(fmt.Sprintf("d%d", i), 0.01+rng.Float64(), 0)
			d.Head = i == 0
			devices = append(devices, d)
		}
		stages, err := Apportion(need, devices)
		if err != nil {
			t.Fatal(err)
		}
		before, err := Predict(need, stages, nil)
		if err != nil {
			t.Fatal(err)
		}
		stages[rng.IntN(len(stages))].Score *= 2
		after, err := Predict(need, stages, nil)
		if err != nil || after.TokensPerSecond <= before.TokensPerSecond {
			t.Fatalf("%s: from %v to %v tokens/s with a faster device (%v)", cut(stages), before.TokensPerSecond, after.TokensPerSecond, err)
		}
	}
	last := math.Inf(1)
	for n := 1; n <= 8; n++ {
		var devices []Device
		for i := range n {
			d := device(fmt.Sprintf("d%d", i), 1, 0)
			d.Head = i == 0
			devices = append(devices, d)
		}
		stages, err := Apportion(need, devices)
		if err != nil {
			t.Fatal(err)
		}
		p, err := Predict(need, stages, nil)
		if err != nil || p.TokensPerSecond >= last {
			t.Errorf("%d stages: %v tokens/s (%v), %d stages %v", n, p.TokensPerSecond, err, n-1, last)
		}
		last = p.TokensPerSecond
	}
}

func TestCompareAndAdvice(t *testing.T) {
	for _, c := range []struct {
		name    string
		devices []Device
		best    string // the best machine alone, "" if none fits
		advice  string
	}{
		{"equal machines", []Device{device("head", 1, 0), device("a", 1, 0)}, "head",
			"one machine is faster: head alone gives 27.2 tokens/s, this plan 26.7"},
		{"another machine is better", []Device{device("head", 1, 0), device("a", 4, 0)}, "a",
			"one machine is faster: a alone gives 109.0 tokens/s, this plan 58.6"},
		{"no machine holds it", []Device{device("head", 1, holds(20, true)), device("a", 4, holds(20, false))}, "", ""},
		{"only the slow one holds it", []Device{device("head", 0.1, 0), device("a", 40, holds(31, false))}, "head", ""},
	} {
		need := mib(32)
		options, err := Compare(need, c.devices, LAN)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if len(options) != len(c.devices) {
			t.Errorf("%s: %d options for %d devices", c.name, len(options), len(c.devices))
		}
		if one := options[0]; one.Fits != (c.best != "") || one.Fits && one.Devices[0] != c.best {
			t.Errorf("%s: alone %+v, want %q", c.name, one, c.best)
		}
		stages, err := Apportion(need, c.devices)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		chosen, err := Predict(need, stages, nil)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if got := Advice(chosen, options); got != c.advice {
			t.Errorf("%s: advice %q, want %q", c.name, got, c.advice)
		}
	}
	if got := Advice(Prediction{Stages: 1, TokensPerSecond: 1}, []Option{{Fits: true, Prediction: Prediction{Stages: 1, TokensPerSecond: 9}}}); got != "" {
		t.Errorf("advice for a plan of one machine: %q", got)
	}
	if _, err := Compare(mib(4), []Device{device("a", 1, 0)}, LAN); err == nil {
		t.Error("devices without a head are compared")
	}
}

// A device that gets no layers makes no option: each set of machines stands once, by rising number.
func TestCompareOnce(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	short := 0 // cases where a device gets nothing
	for range 500 {
		need := mib(1 + rng.IntN(12))
		devices := randomDevices(rng, need.Layers)
		options, err := Compare(need, devices, LAN)
		if err != nil {
			t.Fatal(err)
		}
		if len(options) < len(devices) {
			short++
		}
		for i, o := range options {
			if len(o.Devices) != o.Stages || i > 0 && o.Stages <= options[i-1].Stages {
				t.Fatalf("%v: option %d of %v", devices, i, options)
			}
		}
	}
	if short == 0 {
		t.Error("every device got layers")
	}

	fast := []Device{device("head", 40, 0), device("a", 1, 0), device("b", 1, 0), device("c", 1, 0)}
	options, err := Compare(mib(8), fast, LAN)
	if err != nil || len(options) != 1 || options[0].Devices[0] != "head" {
		t.Errorf("%v, %v: want the head, which gets all layers whatever helps", options, err)
	}
}

// What was chosen is among the options, once, however its layers were found.
func TestWithChosen(t *testing.T) {
	option := func(speed float64, devices ...string) Option {
		return Option{Devices: devices, Fits: true, Prediction: Prediction{Stages: len(devices), TokensPerSecond: speed}}
	}
	options := []Option{option(9, "a"), option(8, "head", "b"), option(5, "head", "b", "a", "c")}
	for _, c := range []struct {
		name   string
		stages []Stage
		want   string
	}{
		{"a number without an option", []Stage{stage("head", "0"), stage("a", "1"), stage("b", "2")}, "[a] 9, [head b] 8, [head a b] 1, [head b a c] 5"},
		{"the same devices in another order", []Stage{stage("head", "0"), stage("a", "1"), stage("b", "2"), stage("c", "3")}, "[a] 9, [head b] 8, [head a b c] 1"},
		{"other devices, as many", []Stage{stage("head", "0"), stage("a", "1")}, "[a] 9, [head b] 8, [head a] 1, [head b a c] 5"},
		{"more than all", []Stage{stage("head", "none"), stage("a", "0"), stage("b", "1"), stage("c", "2"), stage("d", "3")},
			"[a] 9, [head b] 8, [head b a c] 5, [head a b c d] 1"},
	} {
		var got []string
		for _, o := range WithChosen(options, c.stages, Prediction{Stages: len(c.stages), TokensPerSecond: 1}) {
			got = append(got, fmt.Sprintf("%v %v", o.Devices, o.TokensPerSecond))
		}
		if strings.Join(got, ", ") != c.want {
			t.Errorf("%s: %s, want %s", c.name, strings.Join(got, ", "), c.want)
		}
	}
	if options[2].TokensPerSecond != 5 || len(options) != 3 {
		t.Errorf("the caller's options were changed: %v", options)
	}
}
