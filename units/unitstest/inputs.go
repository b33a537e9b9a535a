package unitstest

import (
	"math"
	"math/rand/v2"
)

// pattern is a kind of input row.
type pattern struct {
	name string
	fill func(rng *rand.Rand, x []f32)
}

// patterns are the rows every operation is tried on.
var patterns = []pattern{
	{"normal", func(rng *rand.Rand, x []f32) { each(x, func(int) float64 { return rng.NormFloat64() }) }},
	{"zeros", func(_ *rand.Rand, x []f32) { clear(x) }},
	{"one value", func(rng *rand.Rand, x []f32) { clear(x); x[rng.IntN(len(x))] = -3 }},
	{"equal", func(_ *rand.Rand, x []f32) { each(x, func(int) float64 { return -1.0 / 3 }) }},
	{"outlier", func(rng *rand.Rand, x []f32) {
		each(x, func(int) float64 { return rng.NormFloat64() })
		x[rng.IntN(len(x))] = 4000
	}},
	{"just wide or not", func(rng *rand.Rand, x []f32) {
		each(x, func(int) float64 { return float64(1 + rng.IntN(2)) })
		x[0] = f32(40 + rng.IntN(60))
	}},
	{"low limbs -128", func(rng *rand.Rand, x []f32) {
		// q = 256*h - 128 with the largest magnitude fixing the exponent at 0
		each(x, func(int) float64 { return float64(256*(rng.IntN(200)-100) - 128) })
		x[0] = -32512 - 127
	}},
	{"largest q", func(_ *rand.Rand, x []f32) {
		each(x, func(i int) float64 { return []float64{32639, -32639, 32639.49, 32767}[i%4] })
	}},
	{"just over", func(_ *rand.Rand, x []f32) {
		each(x, func(i int) float64 { return 32639.5 + float64(i%3)/128 })
	}},
	{"wide, largest", func(rng *rand.Rand, x []f32) {
		// the largest value below the next exponent: 8355711.5 with three limbs, which would round up
		each(x, func(int) float64 { return rng.NormFloat64() })
		x[len(x)/2] = 32639.5 - 1.0/512
		x[0] = -x[len(x)/2]
	}},
	{"ties", func(rng *rand.Rand, x []f32) {
		each(x, func(int) float64 { return float64(rng.IntN(4000)) + 0.5 })
		x[0] = 16384
	}},
	{"tiny", func(rng *rand.Rand, x []f32) {
		each(x, func(int) float64 { return math.Ldexp(rng.NormFloat64(), -60) })
	}},
	{"large", func(rng *rand.Rand, x []f32) { each(x, func(int) float64 { return math.Ldexp(rng.NormFloat64(), 20) }) }},
	{"wide range", func(rng *rand.Rand, x []f32) {
		each(x, func(int) float64 { return math.Ldexp(rng.NormFloat64(), rng.IntN(60)-50) })
	}},
}

// each sets every value, flushed: what an operation reads has been stored by one.
func each(x []f32, f func(i int) float64) {
	for i := range x {
		x[i] = flush(f32(f(i)))
	}
}

// inputs is one row of each pattern, and how many there are.
func inputs(rng *rand.Rand, width int) (rows int, in []f32) {
	in = make([]f32, len(patterns)*width)
	for i, p := range patterns {
		p.fill(rng, in[i*width:(i+1)*width])
	}
	return len(patterns), in
}
