package plan

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// mib is a need whose layers take one MiB each, the head's part three, and the KV cache nothing.
func mib(layers int) Need {
	return Need{Layers: layers, Limbs: 1, Layer: Tensors{Weights: 1 << 20}, Head: Tensors{Weights: 3 << 20}, Context: 1, Sessions: 1}
}

// holds is memory in which exactly so many layers of mib fit.
func holds(layers int, head bool) int64 {
	need := int64(layers) << 20
	if head {
		need += 3 << 20
	}
	return need + 32<<20
}

func device(name string, score float64, memory int64) Device {
	return Device{ID: name, Name: name, Head: name == "head", Score: score, Memory: memory}
}

// cut prints stages as "head 0-3, a 4-7".
func cut(stages []Stage) string {
	parts := make([]string, len(stages))
	for i, s := range stages {
		parts[i] = s.Name + " " + s.Range.String()
	}
	return strings.Join(parts, ", ")
}

func TestApportion(t *testing.T) {
	for _, c := range []struct {
		name    string
		layers  int
		devices []Device
		want    string
	}{
		{"alone", 8, []Device{device("head", 5, 0)}, "head 0-7"},
		{"equal", 8, []Device{device("b", 1, 0), device("head", 1, 0)}, "head 0-3, b 4-7"},
		{"ids give the order", 6, []Device{device("c", 1, 0), device("a", 1, 0), device("head", 1, 0)}, "head 0-1, a 2-3, c 4-5"},
		{"proportional", 24, []Device{device("head", 20, 0), device("a", 60, 0), device("b", 40, 0)}, "head 0-3, a 4-15, b 16-23"},
		{"largest fraction", 10, []Device{device("head", 1, 0), device("a", 1.5, 0), device("b", 2, 0)}, "head 0-1, a 2-4, b 5-9"},
		{"tie goes to the head", 3, []Device{device("a", 1, 0), device("head", 1, 0)}, "head 0-1, a 2-2"},
		{"tie goes to the lower id", 4, []Device{device("b", 1, 0), device("a", 1, 0), device("head", 1, 0)}, "head 0-1, a 2-2, b 3-3"},
		{"slow device dropped", 8, []Device{device("head", 100, 0), device("a", 1, 0), device("b", 100, 0)}, "head 0-3, b 4-7"},
		{"slow head kept", 8, []Device{device("head", 0.01, 0), device("a", 100, 0)}, "head none, a 0-7"},
		{"head without capacity", 8, []Device{device("head", 0, 0), device("a", 1, 0), device("b", 1, 0)}, "head none, a 0-3, b 4-7"},
		{"device without capacity", 8, []Device{device("head", 1, 0), device("a", 0, 0)}, "head 0-7"},
		{"more devices than layers", 2, []Device{device("head", 1, 0), device("a", 1, 0), device("b", 1, 0), device("c", 2, 0)}, "head 0-0, c 1-1"},
		{"memory caps the fast one", 8, []Device{device("head", 1, 0), device("a", 100, holds(2, false))}, "head 0-5, a 6-7"},
		{"the rest goes by score", 12, []Device{device("head", 10, 0), device("a", 80, holds(3, false)), device("b", 20, 0)}, "head 0-2, a 3-5, b 6-11"},
		{"caps cascade", 12, []Device{device("head", 1, 0), device("a", 80, holds(3, false)), device("b", 40, holds(5, false))}, "head 0-3, a 4-6, b 7-11"},
		{"exactly full", 9, []Device{device("head", 1, holds(2, true)), device("a", 1, holds(3, false)), device("b", 1, holds(4, false))}, "head 0-1, a 2-4, b 5-8"},
		{"head holds its own part only", 4, []Device{device("head", 9, holds(0, true)), device("a", 1, 0)}, "head none, a 0-3"},
		{"device too small for one", 4, []Device{device("head", 1, 0), device("a", 9, 1<<20)}, "head 0-3"},
		{"tiny scores", 4, []Device{device("head", 1e-300, 0), device("a", 3e-300, 0)}, "head 0-0, a 1-3"},
	} {
		stages, err := Apportion(mib(c.layers), c.devices)
		if err != nil || cut(stages) != c.want {
			t.Errorf("%s: got %s, %v; want %s", c.name, cut(stages), err, c.want)
		}
	}
}

// readerDevice is a device that can hold the readout in place of the head.
func readerDevice(name string, score float64, memory int64) Device {
	d := device(name, score, memory)
	d.Readout = true
	return d
}

// The readout is where the plan says, and there is memory for it there: with the head, unless the last stage takes it.
func TestApportionReadout(t *testing.T) {
	for _, c := range []struct {
		name    string
		layers  int
		devices []Device
		want    string // "" for a plan that does not fit
		reads   bool   // the last stage
	}{
		{"last reads", 4, []Device{device("head", 0, 0), readerDevice("a", 1, 0)}, "head none, a 0-3", true},
		{"only one that is not last could", 4, []Device{device("head", 0, 0), readerDevice("a", 1, 0), device("b", 1, 0)}, "head none, a 0-1, b 2-3", false},
		{"nobody else is left", 4, []Device{device("head", 1, 0), readerDevice("a", 0, 0)}, "head 0-3", false},
		{"room for it", 8, []Device{device("head", 1, 0), readerDevice("a", 100, holds(2, true))}, "head 0-5, a 6-7", true},
		{"head too small for it", 4, []Device{device("head", 0, holds(0, false)), readerDevice("a", 1, 0), readerDevice("b", 1, 0)}, "head none, a 0-1, b 2-3", true},
		{"head too small for it that helps", 4, []Device{device("head", 1, holds(1, false)), readerDevice("a", 1, 0)}, "head 0-0, a 1-3", true},
		{"head too small, not all could", 4, []Device{device("head", 0, holds(0, false)), device("a", 1, 0), readerDevice("b", 1, 0)}, "", false},
		{"head too small, the others too slow", 1, []Device{device("head", 100, holds(1, false)), readerDevice("a", 1, 0)}, "", false},
		{"no room for it", 4, []Device{device("head", 0, 0), readerDevice("a", 1, holds(4, false))}, "", false},
	} {
		stages, err := Apportion(mib(c.layers), c.devices)
		var fit *FitError
		switch {
		case c.want == "":
			if !errors.As(err, &fit) {
				t.Errorf("%s: got %s, %v; want what does not fit", c.name, cut(stages), err)
			}
		case err != nil || cut(stages) != c.want:
			t.Errorf("%s: got %s, %v; want %s", c.name, cut(stages), err, c.want)
		default:
			for i, s := range stages {
				if got, want := s.Readout, c.reads && i == len(stages)-1; got != want {
					t.Errorf("%s: stage %s reads out: %v", c.name, s.Name, got)
				}
				holds := s.Head && !c.reads || s.Readout
				if got, want := s.WeightBytes, mib(c.layers).WeightBytes(s.Range.Len(), holds); got != want {
					t.Errorf("%s: stage %s holds %d bytes of weights, want %d", c.name, s.Name, got, want)
				}
			}
		}
	}
}

func TestApportionCounts(t *testing.T) {
	need := Need{
		Layers: 4, Limbs: 2, Layer: Tensors{Weights: 100, Rows: 10, Vectors: 5}, Head: Tensors{Weights: 50, Rows: 5, Vectors: 1, Raw: 7},
		KVPosition: 3, Context: 10, Sessions: 2, Scratch: 1,
	}
	stages, err := Apportion(need, []Device{
		{ID: "h", Name: "home", Head: true, Score: 1},
		{ID: "k", Name: "away", Addr: "10.0.0.2:1", Fingerprint: "SHA256:k", Score: 3, Memory: 1 << 40},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []Stage{
		{Name: "home", Head: true, Range: Range{0, 0}, WeightBytes: 200 + 40 + 20 + 100 + 20 + 4 + 7, KVBytes: 60, Score: 1},
		{Name: "away", Addr: "10.0.0.2:1", Fingerprint: "SHA256:k", Range: Range{1, 3}, WeightBytes: 3 * 260, KVBytes: 180, Score: 3, Memory: 1 << 40},
	}
	if fmt.Sprint(stages) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", stages, want)
	}
}

func TestApportionErrors(t *testing.T) {
	for _, c := range []struct {
		name    string
		need    Need
		devices []Device
		want    string
	}{
		{"no devices", mib(4), nil, "no device is the head"},
		{"no head", mib(4), []Device{device("a", 1, 0)}, "no device is the head"},
		{"two heads", mib(4), []Device{{ID: "x", Name: "x", Head: true, Score: 1}, {ID: "y", Name: "y", Head: true, Score: 1}}, "both x and y are the head"},
		{"twice", mib(4), []Device{device("head", 1, 0), device("a", 1, 0), device("a", 2, 0)}, "a appears twice"},
		{"no capacity", mib(4), []Device{device("head", 0, 0), device("a", 0, 0)}, "no device has a capacity above 0"},
		{"negative", mib(4), []Device{device("head", -1, 0)}, "head has a capacity of -1"},
		{"not a number", mib(4), []Device{device("head", math.NaN(), 0)}, "head has a capacity of NaN"},
		{"infinite", mib(4), []Device{device("head", math.Inf(1), 0)}, "head has a capacity of +Inf"},
		{"negative memory", mib(4), []Device{device("head", 1, -1)}, "head has -1 bytes of memory"},
		{"no layers", mib(0), []Device{device("head", 1, 0)}, "a model of 0 layers"},
		{"no context", func() Need { n := mib(4); n.Context = 0; return n }(), []Device{device("head", 1, 0)}, "context of 0"},
		{"no sessions", func() Need { n := mib(4); n.Sessions = 0; return n }(), []Device{device("head", 1, 0)}, "0 sessions"},
		{"limbs", func() Need { n := mib(4); n.Limbs = 3; return n }(), []Device{device("head", 1, 0)}, "3 limbs"},
		{"overflow", func() Need { n := mib(4); n.KVPosition, n.Context, n.Sessions = 1<<30, 1<<30, 1<<30; return n }(),
			[]Device{device("head", 1, 0)}, "cannot be planned"},
		{"head too small", mib(4), []Device{device("head", 1, 34<<20), device("a", 1, 0)},
			"embedding, readout and buffers on the head (head): needs 3.00 MiB and 32.0 MiB that stay free, have 34.0 MiB"},
		{"head without room for anything", mib(4), []Device{device("head", 1, 1<<20)},
			"needs 3.00 MiB and 32.0 MiB that stay free, have 1.00 MiB"},
		{"too small", mib(10), []Device{device("head", 1, holds(2, true)), device("a", 9, holds(5, false))},
			"only 7 of 10 layers find room at context 1 for 1 session: needs 13.0 MiB and 64.0 MiB that stay free, have 74.0 MiB (head: 5.00 MiB, 2 layers; a: 5.00 MiB, 5 layers)"},
		{"a machine below what stays free", mib(10), []Device{device("head", 1, holds(2, true)), device("a", 9, 1<<20)},
			"only 2 of 10 layers find room at context 1 for 1 session: needs 13.0 MiB and 64.0 MiB that stay free, have 38.0 MiB (head: 5.00 MiB, 2 layers; a: 0 B, 0 layers)"},
		{"too small without the head", mib(10), []Device{device("head", 0, 0), device("a", 9, holds(5, false))},
			"only 5 of 10 layers find room at context 1 for 1 session: needs 13.0 MiB and 32.0 MiB that stay free, have 40.0 MiB (head: 3.00 MiB, 0 layers; a: 5.00 MiB, 5 layers)"},
	} {
		stages, err := Apportion(c.need, c.devices)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %s, %v; want %q", c.name, cut(stages), err, c.want)
		}
	}
	var fit *FitError
	for limbs, shrinks := range map[int]bool{1: false, 2: true} {
		need := mib(10)
		need.Limbs = limbs
		_, err := Apportion(need, []Device{device("head", 1, holds(2, true))})
		if !errors.As(err, &fit) || !strings.HasPrefix(fit.Hint(), "add a machine, ") || strings.Contains(fit.Hint(), "int8") != shrinks {
			t.Errorf("%d limbs: got %v, want a FitError that advises what is left to do", limbs, err)
		}
	}
}

// randomDevices has a head and up to six others, some with little memory.
func randomDevices(rng *rand.Rand, layers int) []Device {
	devices := []Device{device("head", 0, 0)}
	for i := range rng.IntN(7) {
		devices = append(devices, device(fmt.Sprintf("d%d", i), 0, 0))
	}
	for i := range devices {
		d := &devices[i]
		d.Score = math.Exp(6 * rng.Float64())
		if rng.IntN(4) == 0 {
			d.Score = float64(1 + rng.IntN(3)) // provoke ties
		}
		if rng.IntN(8) == 0 {
			d.Score = 0
		}
		if rng.IntN(2) == 0 {
			d.Memory = holds(rng.IntN(layers+1), d.Head)
		}
	}
	return devices
}

// counts is the layers of each device by id.
func counts(stages []Stage) map[string]int {
	m := map[string]int{}
	for _, s := range stages {
		m[s.Name] = s.Range.Len()
	}
	return m
}

// TestApportionProperty checks on random devices: a plan is valid and within memory; the order of the devices does not
// matter; the only failure is too little room; a higher score never takes layers away, nor does more memory; and
// without caps every device is within one layer of its exact share.
func TestApportionProperty(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	fitted := 0
	for range 4000 {
		need := mib(1 + rng.IntN(80))
		devices := randomDevices(rng, need.Layers)
		stages, err := Apportion(need, devices)

		room, total, capped := 0, 0.0, false
		for _, d := range devices {
			if d.Score > 0 {
				room += max(need.Fit(d.Memory, d.Head), 0)
				total += d.Score
				capped = capped || d.Memory > 0
			}
		}
		if fits := room >= need.Layers; fits != (err == nil) {
			t.Fatalf("%d layers on %v: room for %d, error %v", need.Layers, devices, room, err)
		}
		if err != nil {
			continue
		}
		fitted++
		p := Plan{Layers: need.Layers, Stages: stages}
		if err := p.Validate(need.Layers); err != nil {
			t.Fatalf("%v: %v", devices, err)
		}
		for _, s := range stages {
			if s.Memory > 0 && need.Total(s.Range.Len(), s.Head) > Usable(s.Memory) {
				t.Fatalf("%s holds %s in %s", s.Name, s.Range, Bytes(s.Memory))
			}
			if exact := float64(need.Layers) * s.Score / total; !capped && math.Abs(float64(s.Range.Len())-exact) >= 1+1e-9 {
				t.Fatalf("%s holds %s, its share is %.3f layers", s.Name, s.Range, exact)
			}
		}

		shuffled := append([]Device(nil), devices...)
		rng.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		again, err := Apportion(need, shuffled)
		if err != nil || cut(again) != cut(stages) {
			t.Fatalf("%v: %s, but shuffled %s, %v", devices, cut(stages), cut(again), err)
		}

		i := rng.IntN(len(devices))
		better := append([]Device(nil), devices...)
		if rng.IntN(2) == 0 {
			better[i].Score *= 1 + rng.Float64()
		} else if better[i].Memory > 0 {
			better[i].Memory += int64(rng.IntN(20)) << 20
		}
		name := devices[i].Name
		more, err := Apportion(need, better)
		if err != nil || counts(more)[name] < counts(stages)[name] {
			t.Fatalf("%s falls from %d to %d layers (%v) when %v becomes %v, among %v",
				name, counts(stages)[name], counts(more)[name], err, devices[i], better[i], devices)
		}
	}
	if fitted < 1000 {
		t.Errorf("only %d of the random cases fitted", fitted)
	}
}

func TestParseCapacities(t *testing.T) {
	got, err := ParseCapacities("laptop=20.5:8GiB, 10.0.0.2:7400=60:500MB,c=0")
	want := []Device{
		{ID: "laptop", Name: "laptop", Head: true, Score: 20.5, Memory: 8 << 30},
		{ID: "10.0.0.2:7400", Name: "10.0.0.2:7400", Score: 60, Memory: 500e6},
		{ID: "c", Name: "c"},
	}
	if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	for _, in := range []string{"", "a", "a=", "=3", "a=x", "a=1:", "a=1:x", "a=-1", "a=inf", "a=nan", "a=1e3", "a=0x10", "a=1,a=2", "a=1,", "a=1:0", "a=1:8XB", "a=1:-8GiB"} {
		if got, err := ParseCapacities(in); err == nil {
			t.Errorf("ParseCapacities(%q) = %v; want an error", in, got)
		}
	}
}

func FuzzParseCapacities(f *testing.F) {
	for _, s := range []string{"a=1", "a=1:8GiB,b=2.5", "a=1:1.5tb", "=", ",", "a=1:9999999999999999999T"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		devices, err := ParseCapacities(s)
		if err != nil {
			return
		}
		if _, err := order(devices); err != nil {
			t.Fatalf("ParseCapacities(%q) = %v, which cannot be planned: %v", s, devices, err)
		}
	})
}
