package plan

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
)

// Link is what one hop costs, in seconds.
type Link struct {
	OneWay   float64 // network latency, one way
	Protocol float64 // everything else: encryption, copies, waking up
}

// LAN is what a plan assumes of links nobody measured: a wired local network.
var LAN = Link{OneWay: 150e-6, Protocol: 250e-6}

// Prediction is how fast a plan decodes one session, from capacities measured beforehand.
type Prediction struct {
	Stages          int     `json:"stages"`
	TokensPerSecond float64 `json:"tokens_per_second"`
	ComputeSeconds  float64 `json:"compute_seconds"` // per token, all stages
	NetworkSeconds  float64 `json:"network_seconds"` // per token, all hops
}

// Predict gives the decode speed of a single session: a token costs every stage's time, since stages work one after
// the other, and one hop per stage of the ring, the return to the head included. A head alone has no hops. A stage's
// time is the bytes it reads over its score: its quantised weights and its KV cache at half the context. Hops without
// an entry in links cost LAN. The score of a stage that reads anything must be known.
func Predict(need Need, stages []Stage, links []Link) (Prediction, error) {
	p := Prediction{Stages: len(stages)}
	reads := reader(stages)
	for i, s := range stages {
		read := need.readPerToken(s.Range.Len(), i == reads)
		if read == 0 {
			continue
		}
		if !(s.Score > 0) {
			return p, fmt.Errorf("the capacity of %s is not known", s.label())
		}
		p.ComputeSeconds += float64(read) / (s.Score * 1e9)
	}
	if len(stages) > 1 {
		for i := range stages {
			link := LAN
			if i < len(links) {
				link = links[i]
			}
			p.NetworkSeconds += link.OneWay + link.Protocol
		}
	}
	p.TokensPerSecond = 1 / (p.ComputeSeconds + p.NetworkSeconds)
	if math.IsInf(p.TokensPerSecond, 0) || math.IsNaN(p.TokensPerSecond) {
		return p, errors.New("a plan without any work has no speed")
	}
	return p, nil
}

// readPerToken is the bytes a stage reads to decode one token: all its linear weights (of an embedding, one row, which
// does not count) and the KV cache of one session at half its context.
func (n Need) readPerToken(layers int, readout bool) int64 {
	linear := func(t Tensors) int64 { t.Raw = 0; return t.Bytes(n.Limbs) }
	read := int64(layers) * (linear(n.Layer) + n.KVPosition*int64(n.Context)/2)
	if readout {
		read += linear(n.Head)
	}
	return read
}

// Option is one way to run the model: on some of the devices.
type Option struct {
	Devices []string `json:"devices"` // names of those that hold something, the head first
	Fits    bool     `json:"fits"`    // else there is no speed
	Prediction
}

// Compare predicts the best use of 1 to len(devices) devices, by rising number: for one, each device is tried as a head of its
// own; for more, the head and the others by falling score. A number that no split comes to, since a further device would get no
// layers, has no option.
func Compare(need Need, devices []Device, link Link) ([]Option, error) {
	shares, err := order(devices)
	if err != nil {
		return nil, err
	}
	best := Option{Prediction: Prediction{Stages: 1}, Devices: []string{shares[0].Name}}
	for _, s := range shares {
		alone := s.Device
		alone.Head = true
		if o := predictOn(need, []Device{alone}, link); o.Fits && o.TokensPerSecond > best.TokensPerSecond {
			best = o
		}
	}
	byStages := map[int]Option{1: best}

	helpers := shares[1:]
	slices.SortStableFunc(helpers, func(a, b share) int { return cmp.Compare(b.Score, a.Score) })
	use := []Device{shares[0].Device}
	for _, s := range helpers {
		use = append(use, s.Device)
		o := predictOn(need, use, link)
		if other, ok := byStages[o.Stages]; !ok || o.Fits && o.TokensPerSecond > other.TokensPerSecond {
			byStages[o.Stages] = o
		}
	}
	return slices.SortedFunc(maps.Values(byStages), func(a, b Option) int { return cmp.Compare(a.Stages, b.Stages) }), nil
}

// WithChosen is options with the stages that a plan has chosen among them, in place of the option of the same devices, whose
// layers may be other ones.
func WithChosen(options []Option, stages []Stage, p Prediction) []Option {
	chosen := Option{Devices: names(stages), Fits: true, Prediction: p}
	same := sorted(chosen.Devices)
	all := slices.DeleteFunc(slices.Clone(options), func(o Option) bool { return slices.Equal(sorted(o.Devices), same) })
	at := slices.IndexFunc(all, func(o Option) bool { return o.Stages > p.Stages })
	if at < 0 {
		at = len(all)
	}
	return slices.Insert(all, at, chosen)
}

func sorted(names []string) []string { return slices.Sorted(slices.Values(names)) }

func names(stages []Stage) []string {
	all := make([]string, len(stages))
	for i, s := range stages {
		all[i] = s.Name
	}
	return all
}

// predictOn apportions the model over the devices and predicts its speed.
func predictOn(need Need, devices []Device, link Link) Option {
	o := Option{Prediction: Prediction{Stages: len(devices)}}
	stages, err := Apportion(need, devices)
	if err != nil {
		for _, d := range devices {
			o.Devices = append(o.Devices, d.Name)
		}
		return o
	}
	o.Devices = names(stages)
	links := make([]Link, len(stages))
	for i := range links {
		links[i] = link
	}
	p, err := Predict(need, stages, links)
	o.Prediction, o.Fits = p, err == nil
	return o
}

// Advice is a sentence when one machine would decode faster than the plan, else "".
func Advice(chosen Prediction, options []Option) string {
	if chosen.Stages <= 1 {
		return ""
	}
	for _, o := range options {
		if o.Stages == 1 && o.Fits && o.TokensPerSecond > chosen.TokensPerSecond {
			return fmt.Sprintf("one machine is faster: %s alone gives %.1f tokens/s, this plan %.1f",
				o.Devices[0], o.TokensPerSecond, chosen.TokensPerSecond)
		}
	}
	return ""
}
