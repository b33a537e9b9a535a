package plan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestParseRange(t *testing.T) {
	for _, c := range []struct {
		in   string
		want Range
	}{
		{"0-11", Range{0, 11}},
		{"7", Range{7, 7}},
		{"7-7", Range{7, 7}},
		{"012-13", Range{12, 13}},
		{"none", None},
	} {
		got, err := ParseRange(c.in)
		if err != nil || got != c.want {
			t.Errorf("ParseRange(%q) = %v, %v; want %v", c.in, got, err, c.want)
		}
	}
	for _, in := range []string{"", "-", "-1", "3-", "-3", "1-2-3", "5-4", "a-b", " 1-2", "1 - 2", "+1-2", "1-0x3",
		"99999999999999999999", "0-65536", "None", "1_0-20", "١-٢"} {
		if got, err := ParseRange(in); err == nil {
			t.Errorf("ParseRange(%q) = %v; want an error", in, got)
		} else if !strings.Contains(err.Error(), fmt.Sprintf("%q", in)) {
			t.Errorf("ParseRange(%q): error %q does not quote the text", in, err)
		}
	}
}

func FuzzParseRange(f *testing.F) {
	for _, s := range []string{"0-11", "7", "none", "", "-", "5-4", "1-2-3", "65535-65535", "00-01"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseRange(s)
		if err != nil {
			if r != None {
				t.Fatalf("ParseRange(%q) = %v with error %v", s, r, err)
			}
			return
		}
		if r != None && (r.First < 0 || r.Last < r.First || r.Last >= maxLayers) {
			t.Fatalf("ParseRange(%q) = {%d %d}", s, r.First, r.Last)
		}
		again, err := ParseRange(r.String())
		if err != nil || again != r {
			t.Fatalf("ParseRange(%q) = %v, printed %q, read back %v, %v", s, r, r.String(), again, err)
		}
		text, _ := r.MarshalText()
		var back Range
		if err := back.UnmarshalText(text); err != nil || back != r {
			t.Fatalf("UnmarshalText(%q) = %v, %v; want %v", text, back, err, r)
		}
	})
}

func TestRange(t *testing.T) {
	r := Range{3, 5}
	if r.Len() != 3 || r.Contains(2) || !r.Contains(3) || !r.Contains(5) || r.Contains(6) {
		t.Errorf("range %v: len %d, contains %v %v %v %v", r, r.Len(), r.Contains(2), r.Contains(3), r.Contains(5), r.Contains(6))
	}
	if None.Len() != 0 || None.Contains(0) || None.String() != "none" {
		t.Errorf("None: len %d, string %q", None.Len(), None)
	}
	var bad Range
	if err := json.Unmarshal([]byte(`"4-2"`), &bad); err == nil {
		t.Error(`"4-2" was read as a range`)
	}
}

// stage makes a stage of the plan tests: "head" is the head.
func stage(name, layers string) Stage {
	r, err := ParseRange(layers)
	if err != nil {
		panic(err)
	}
	return Stage{Name: name, Head: name == "head", Range: r}
}

func TestValidate(t *testing.T) {
	head := stage("head", "none")
	for _, c := range []struct {
		name   string
		layers int
		stages []Stage
		want   string // "" = valid; else the whole error
	}{
		{"head alone", 8, []Stage{stage("head", "0-7")}, ""},
		{"head without layers", 8, []Stage{head, stage("a", "0-7")}, ""},
		{"three", 8, []Stage{stage("head", "0-0"), stage("a", "1-6"), stage("b", "7-7")}, ""},
		{"one layer each", 2, []Stage{head, stage("a", "0"), stage("b", "1")}, ""},

		{"nothing", 8, nil, "the plan has no stages"},
		{"no layers at all", 8, []Stage{head}, "layers 0-7 are held by nobody; start a stage with --layers 0-7 and add it to the peers"},
		{"gap in the middle", 24, []Stage{head, stage("a", "0-11"), stage("b", "14-23")},
			"layers 12-13 are held by nobody; start a stage with --layers 12-13 and add it to the peers"},
		{"gap of one", 8, []Stage{head, stage("a", "0-3"), stage("b", "5-7")},
			"layer 4 is held by nobody; start a stage with --layers 4-4 and add it to the peers"},
		{"gaps at both ends", 8, []Stage{head, stage("a", "1-3"), stage("b", "5-5")},
			"layer 0 is held by nobody; start a stage with --layers 0-0 and add it to the peers (also missing: 4-4, 6-7)"},
		{"overlap of one", 12, []Stage{head, stage("a", "0-7"), stage("b", "7-11")}, "layer 7 is held by both a and b"},
		{"overlap of many", 12, []Stage{head, stage("a", "0-7"), stage("b", "4-11")}, "layers 4-7 are held by both a and b"},
		{"overlap with the head", 12, []Stage{stage("head", "0-3"), stage("a", "2-11")}, "layers 2-3 are held by both head and a"},
		{"the same range twice", 4, []Stage{head, stage("a", "0-3"), stage("b", "0-3")}, "layers 0-3 are held by both a and b"},
		{"overlap before gap", 8, []Stage{head, stage("a", "0-3"), stage("b", "2-4"), stage("c", "6-7")}, "layers 2-3 are held by both a and b"},
		{"beyond the model", 8, []Stage{head, stage("a", "0-8")}, "a holds layers 0-8, but the model has layers 0-7"},
		{"below the model", 8, []Stage{head, {Name: "a", Range: Range{-1, 7}}}, "a holds layers -1-7, but the model has layers 0-7"},
		{"far beyond", 8, []Stage{head, stage("a", "9-60000")}, "a holds layers 9-60000, but the model has layers 0-7"},
		{"wrong order", 8, []Stage{head, stage("a", "4-7"), stage("b", "0-3")},
			"b (layers 0-3) comes after a (layers 4-7): stages must be in layer order, the head first"},
		{"head not holding the first", 8, []Stage{stage("head", "4-7"), stage("b", "0-3")},
			"b (layers 0-3) comes after head (layers 4-7): stages must be in layer order, the head first"},
		{"head not first", 8, []Stage{stage("a", "0-7"), head}, "stage 0 of the plan is a, which is not the head"},
		{"two heads", 8, []Stage{head, stage("head", "0-7")}, "stage 1 of the plan, head, is marked as the head; the head is stage 0"},
		{"idle stage", 8, []Stage{head, stage("a", "0-7"), stage("b", "none")}, "stage 2 of the plan, b, holds no layers"},
		{"same peer twice", 8, []Stage{head, stage("a", "0-3"), stage("a", "4-7")}, "a appears twice in the plan"},
		{"same key twice", 8, []Stage{head, {Name: "a", Fingerprint: "k", Range: Range{0, 3}}, {Name: "b", Fingerprint: "k", Range: Range{4, 7}}},
			"b appears twice in the plan"},
		{"same key, two addresses", 8, []Stage{head, {Name: "a", Addr: "m:1", Fingerprint: "k", Range: Range{0, 3}}, {Name: "b", Addr: "m:2", Fingerprint: "k", Range: Range{4, 7}}}, ""},
	} {
		p := Plan{Layers: c.layers, Stages: c.stages}
		err := p.Validate(c.layers)
		if got := fmt.Sprint(err); (c.want == "") != (err == nil) || err != nil && got != c.want {
			t.Errorf("%s:\n got %v\nwant %s", c.name, err, c.want)
		}
	}

	p := Plan{Layers: 8, Stages: []Stage{stage("head", "0-7")}}
	if err := p.Validate(24); err == nil || err.Error() != "the plan is for a model of 8 layers, this one has 24" {
		t.Errorf("plan for another model: %v", err)
	}
	if err := p.Validate(0); err == nil {
		t.Error("a model without layers was accepted")
	}
	p.Layers = 1 << 40
	if err := p.Validate(1 << 40); err == nil {
		t.Error("a model of 2^40 layers was accepted")
	}
}

// Any plan that Validate accepts gives each layer to exactly one stage in order, and it accepts every such plan: so
// random cuts pass, and a random change to one boundary does not.
func TestValidateProperty(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		layers := 2 + rng.IntN(40)
		p := randomCut(rng, layers)
		if err := p.Validate(layers); err != nil {
			t.Fatalf("%v: %v", p.Stages, err)
		}
		i := rng.IntN(len(p.Stages))
		s := &p.Stages[i]
		if s.Range.Len() == 0 {
			continue
		}
		if d := 1 - 2*rng.IntN(2); rng.IntN(2) == 0 {
			s.Range.First += d
		} else {
			s.Range.Last += d
		}
		if err := p.Validate(layers); err == nil {
			t.Fatalf("%v of %d layers is accepted", p.Stages, layers)
		}
	}
}

// randomCut covers layers by a head and up to five stages.
func randomCut(rng *rand.Rand, layers int) *Plan {
	p := &Plan{Layers: layers, Stages: []Stage{stage("head", "none")}}
	next := 0
	if rng.IntN(2) == 0 {
		next = 1 + rng.IntN(layers)
		p.Stages[0].Range = Range{0, next - 1}
	}
	for next < layers {
		n := 1 + rng.IntN(layers-next)
		if len(p.Stages) == 5 {
			n = layers - next
		}
		p.Stages = append(p.Stages, Stage{Name: fmt.Sprintf("s%d", len(p.Stages)), Range: Range{next, next + n - 1}})
		next += n
	}
	return p
}

func TestFromRanges(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 500 {
		layers := 1 + rng.IntN(30)
		want := randomCut(rng, layers)
		peers := append([]Stage(nil), want.Stages[1:]...)
		rng.Shuffle(len(peers), func(i, j int) { peers[i], peers[j] = peers[j], peers[i] })
		given := fmt.Sprint(peers)
		got, err := FromRanges(Plan{Layers: layers, Model: "m"}, want.Stages[0], peers)
		if err != nil {
			t.Fatalf("%v: %v", peers, err)
		}
		if fmt.Sprint(got.Stages) != fmt.Sprint(want.Stages) || got.Model != "m" {
			t.Fatalf("got %v, want %v", got.Stages, want.Stages)
		}
		if fmt.Sprint(peers) != given {
			t.Fatal("the caller's peers were reordered")
		}
	}

	head := Stage{Range: None}
	for _, c := range []struct {
		peers []Stage
		want  string
	}{
		{[]Stage{stage("b", "14-23"), stage("a", "0-11")}, "layers 12-13 are held by nobody"},
		{[]Stage{stage("b", "7-23"), stage("a", "0-7")}, "layer 7 is held by both a and b"},
		{[]Stage{stage("a", "0-23"), stage("b", "none")}, "b, holds no layers"},
		{nil, "layers 0-23 are held by nobody"},
	} {
		_, err := FromRanges(Plan{Layers: 24}, head, c.peers)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: got %v, want %q", c.peers, err, c.want)
		}
	}
}

func TestPlanJSON(t *testing.T) {
	p := Plan{
		Model: "org/model@main", Weights: "int8", Layers: 8, Context: 1024, Sessions: 1,
		Stages: []Stage{stage("head", "none"), {Name: "a", Addr: "10.0.0.2:7400", Fingerprint: "SHA256:x", Range: Range{0, 7}, WeightBytes: 5}},
	}
	data, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"layers":"0-7"`, `"layers":"none"`, `"layers":8`, `"weight_bytes":5`, `"head":true`} {
		if !bytes.Contains(data, []byte(want)) {
			t.Errorf("%s lacks %s", data, want)
		}
	}
	back, err := Read(data)
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(*back) != fmt.Sprint(p) {
		t.Errorf("read back %v, want %v", *back, p)
	}

	for _, c := range []struct{ in, want string }{
		{``, "reading plan"},
		{`[]`, "reading plan"},
		{string(data) + `{}`, "more than one"},
		{strings.Replace(string(data), `"0-7"`, `"0-6"`, 1), "layer 7 is held by nobody"},
		{strings.Replace(string(data), `"0-7"`, `"seven"`, 1), "bad layer range"},
		{strings.Replace(string(data), `"sessions"`, `"sesions"`, 1), "sesions"},
		{strings.Replace(string(data), `"head":true,`, ``, 1), "not the head"},
	} {
		if _, err := Read([]byte(c.in)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("Read(%s): got %v, want %q", c.in, err, c.want)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"layers":1,"stages":[{"head":true,"layers":"0-0"}]}`))
	f.Add([]byte(`{"layers":65000,"stages":[{"head":true,"layers":"0-9"},{"layers":"10-64999"}]}`))
	f.Add([]byte(`{"layers":1000000000,"stages":[{"head":true,"layers":"none"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := Read(data)
		if err != nil {
			return
		}
		next := 0
		for _, s := range p.Stages {
			if s.Range.Len() > 0 {
				if s.Range.First != next {
					t.Fatalf("%s: accepted, but layer %d is followed by %s", data, next-1, s.Range)
				}
				next = s.Range.Last + 1
			}
		}
		if next != p.Layers {
			t.Fatalf("%s: accepted, but covers %d of %d layers", data, next, p.Layers)
		}
	})
}
