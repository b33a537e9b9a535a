package stage

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"dchain/units"
)

// Sampling chooses a token from logits. The zero value is greedy.
type Sampling struct {
	Temperature   float64 // 0 = greedy
	TopK          int     // 0 = all
	TopP          float64 // 0 or 1 = all
	MinP          float64 // 0 = all
	RepeatPenalty float64 // 0 or 1 = none
	Seed          uint64
}

// Validate names the first option out of range.
func (s Sampling) Validate() error {
	switch {
	case !(s.Temperature >= 0) || math.IsInf(s.Temperature, 0):
		return fmt.Errorf("temperature %v is not a number from 0 up", s.Temperature)
	case s.TopK < 0:
		return fmt.Errorf("top-k %d is negative", s.TopK)
	case !(s.TopP >= 0 && s.TopP <= 1):
		return fmt.Errorf("top-p %v is not between 0 and 1", s.TopP)
	case !(s.MinP >= 0 && s.MinP <= 1):
		return fmt.Errorf("min-p %v is not between 0 and 1", s.MinP)
	case !(s.RepeatPenalty >= 0) || math.IsInf(s.RepeatPenalty, 0):
		return fmt.Errorf("repeat penalty %v is not a positive number", s.RepeatPenalty)
	}
	return nil
}

// Sampler draws tokens reproducibly: the same logits, history and seed give the same ids on every machine, because
// the weights of the draw come from units.Exp and integer sums.
type Sampler struct {
	opts    Sampling
	inverse float32 // 1/temperature; a temperature too small to divide by is greedy
	rng     *rand.PCG
}

// NewSampler seeds a sampler.
func NewSampler(opts Sampling) *Sampler {
	return &Sampler{opts: opts, inverse: float32(min(1/opts.Temperature, math.MaxFloat32)), rng: rand.NewPCG(opts.Seed, 0x6463_6861_696e)}
}

// candidate is a token with its logit, later its fixed-point weight.
type candidate struct {
	id     int
	logit  float32
	weight uint64
}

// Pick returns the next token. history is every id so far, prompt included; logits may be altered.
func (s *Sampler) Pick(logits []float32, history []int) int {
	if s.penalises() {
		s.penalise(logits, history)
	}
	if s.opts.Temperature == 0 {
		return Argmax(logits)
	}
	all := s.candidates(logits)
	slices.SortFunc(all, func(a, b candidate) int {
		return cmp.Or(-cmp.Compare(a.logit, b.logit), cmp.Compare(a.id, b.id))
	})
	return s.draw(all)
}

// top is how many of the most probable tokens Pick looks at, 0 where it is all.
func (s *Sampler) top() int {
	switch {
	case s.penalises():
		return 0
	case s.opts.Temperature == 0:
		return 1
	}
	return s.opts.TopK
}

// pick is Pick from scores of at least top tokens.
func (s *Sampler) pick(from *scores, history []int) int {
	if from.top == 0 {
		return s.Pick(from.values, history)
	}
	ids, logits := from.values[:from.top], from.values[from.top:]
	if s.opts.Temperature == 0 {
		return int(ids[0])
	}
	all := make([]candidate, 0, from.top)
	for i, l := range logits {
		if s.counts(l, logits[0]) {
			all = append(all, candidate{id: int(ids[i]), logit: l})
		}
	}
	return s.draw(all)
}

// draw picks from candidates, the most probable first and the lower id first among equals.
func (s *Sampler) draw(all []candidate) int {
	if k := s.opts.TopK; k > 0 && k < len(all) {
		all = all[:k]
	}
	all = s.weigh(all)
	var total uint64
	for _, c := range all {
		total += c.weight
	}
	at := s.below(total)
	for _, c := range all {
		if at < c.weight {
			return c.id
		}
		at -= c.weight
	}
	return all[0].id // not reached: at < total
}

// penalises says whether tokens seen before count differently.
func (s *Sampler) penalises() bool {
	p := float32(s.opts.RepeatPenalty)
	return p != 0 && p != 1
}

// penalise divides the positive and multiplies the negative logits of every token seen, once each.
func (s *Sampler) penalise(logits []float32, history []int) {
	p := float32(s.opts.RepeatPenalty)
	seen := make(map[int]bool, len(history))
	for _, id := range history {
		if id < 0 || id >= len(logits) || seen[id] {
			continue
		}
		seen[id] = true
		if logits[id] > 0 {
			logits[id] /= p
		} else {
			logits[id] *= p
		}
	}
}

// counts says whether a token's weight relative to the most probable one is not rounded to 0 (e^-28 < 2^-40).
func (s *Sampler) counts(logit, best float32) bool { return float32(logit-best)*s.inverse > -28 }

// candidates lists the tokens that count.
func (s *Sampler) candidates(logits []float32) []candidate {
	best := logits[Argmax(logits)]
	var all []candidate
	for id, l := range logits {
		if s.counts(l, best) {
			all = append(all, candidate{id: id, logit: l})
		}
	}
	return all
}

// weightOne is the fixed-point weight of the most probable token.
const weightOne = 1 << 40

// weigh turns sorted logits into weights relative to the first, and applies min-p and top-p. At least one is left.
func (s *Sampler) weigh(all []candidate) []candidate {
	var total uint64
	for i := range all {
		d := float32((all[i].logit - all[0].logit) * s.inverse)
		w := float64(units.Exp(d)) * weightOne
		all[i].weight = uint64(math.RoundToEven(w))
		if all[i].weight == 0 || w < s.opts.MinP*weightOne {
			all = all[:i]
			break
		}
		total += all[i].weight
	}
	if p := s.opts.TopP; p > 0 && p < 1 {
		limit := uint64(p * float64(total))
		var sum uint64
		for i := range all {
			sum += all[i].weight
			if sum >= limit {
				return all[:i+1]
			}
		}
	}
	return all
}

// below draws a uniform integer in [0, n) without bias.
func (s *Sampler) below(n uint64) uint64 {
	limit := math.MaxUint64 - math.MaxUint64%n
	for {
		if v := s.rng.Uint64(); v < limit {
			return v % n
		}
	}
}

// Argmax is the most probable id; of equal logits the lowest id.
func Argmax(logits []float32) int {
	best, top := 0, logits[0]
	for i, v := range logits {
		if v > top {
			best, top = i, v
		}
	}
	return best
}
