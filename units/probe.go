package units

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// ProbeResult is what Probe measured.
type ProbeResult struct {
	Device string
	// Hash is over the bits of a fixed GEMM: equal on every machine and backend of one numerics version.
	Hash [32]byte
	// GMACs is the capacity: 10^9 int8 multiply-adds per second when decoding, one row at a time through weights that do
	// not fit the caches.
	GMACs float64
	// PrefillGMACs is the same for batches of 48 rows.
	PrefillGMACs float64
	Took         time.Duration
}

const (
	probeN, probeK = 2048, 2048
	probeMatrices  = 8 // 32 MiB of weights
	probeRows      = 48
	probeRuns      = 3 // at least, unless one takes longer than probeFor; then for at least probeFor
	probeFor       = 100 * time.Millisecond
	rowLimbs       = 2 // multiply-adds per weight and ordinary row
)

// Probe computes the seeded GEMM and times a decode-like and a prefill-like shape.
func Probe(dev Device) (p ProbeResult, err error) {
	start := time.Now()
	s := &scope{Device: dev}
	defer func() { err = errors.Join(err, s.Close()) }()
	p.Device = dev.Name()
	if p.Hash, err = ProbeHash(dev); err != nil {
		return p, err
	}
	if p.GMACs, p.PrefillGMACs, err = probeSpeed(s); err != nil {
		return p, fmt.Errorf("probing %s: %w", dev.Name(), err)
	}
	p.Took = time.Since(start)
	return p, nil
}

// ProbeHash is the hash of Probe alone, which takes milliseconds.
func ProbeHash(dev Device) ([32]byte, error) {
	s := &scope{Device: dev}
	hash, err := probeHash(s)
	err = errors.Join(err, s.Close())
	if err != nil {
		return hash, fmt.Errorf("probing %s: %w", dev.Name(), err)
	}
	return hash, nil
}

// probeHash hashes the results of both weight formats on every kind of input row.
func probeHash(dev Device) (hash [32]byte, err error) {
	const n, k = 250, 1000
	s := gateSeries(42)
	p := Program{In: 0, Bufs: []BufSpec{{F32, k}, {Limbs, k}, {F32, n}, {F32, n}}, Ops: []Op{{Kind: OpQuantize, Dst: 1, A: 0, B: None}}}
	for _, mode := range []WeightMode{Int8, Int8x2} {
		l, err := s.linear(dev, n, k, mode)
		if err != nil {
			return hash, err
		}
		p.Ops = append(p.Ops, Op{Kind: OpLinear, Dst: 2 + Buf(mode), A: 1, B: None, Linear: l})
	}
	rows := make([]Row, len(gateInputs))
	in, out := make([]float32, len(rows)*k), make([]float32, len(rows)*n)
	for i, input := range gateInputs {
		input.fill(in[i*k:(i+1)*k], &s)
	}
	sum := sha256.New()
	for p.Out = 2; p.Out <= 3; p.Out++ {
		e, err := dev.Compile(p)
		if err != nil {
			return hash, err
		}
		if err := e.Run(rows, in, out); err != nil {
			return hash, err
		}
		for _, y := range out {
			sum.Write(binary.LittleEndian.AppendUint32(nil, math.Float32bits(y)))
		}
	}
	return [32]byte(sum.Sum(nil)), nil
}

func probeSpeed(dev Device) (decode, prefill float64, err error) {
	s := gateSeries(43)
	weights := s.values(probeN*probeK/8, 0.05)
	p := Program{In: 0, Bufs: []BufSpec{{F32, probeK}, {Limbs, probeK}}, Ops: []Op{{Kind: OpQuantize, Dst: 1, A: 0, B: None}}}
	for i := range probeMatrices {
		l, err := dev.NewLinear("probe", probeN, probeK, Int8)
		if err != nil {
			return 0, 0, err
		}
		for r := 0; r < probeN; r += probeN / 8 {
			if err := l.PutRows(r, weights); err != nil {
				return 0, 0, err
			}
		}
		if err := l.Finish(); err != nil {
			return 0, 0, err
		}
		p.Bufs = append(p.Bufs, BufSpec{F32, probeN})
		p.Ops = append(p.Ops, Op{Kind: OpLinear, Dst: Buf(2 + i), A: 1, B: None, Linear: l})
	}
	p.Out = 2
	if decode, err = probeRate(dev, p, 1, &s); err != nil {
		return 0, 0, err
	}
	p.Ops = p.Ops[:2] // one matrix is enough work
	prefill, err = probeRate(dev, p, probeRows, &s)
	return decode, prefill, err
}

// probeRate is the median rate of running the program, in 10^9 multiply-adds per second.
func probeRate(dev Device, p Program, rows int, s *gateSeries) (float64, error) {
	e, err := dev.Compile(p)
	if err != nil {
		return 0, err
	}
	in, out, batch := s.values(rows*probeK, 1), make([]float32, rows*probeN), make([]Row, rows)
	if err := e.Run(batch, in, out); err != nil { // warm up: pages, workers
		return 0, err
	}
	var took []time.Duration
	for start := time.Now(); len(took) == 0 || (len(took) < probeRuns && took[0] < probeFor) || time.Since(start) < probeFor; {
		t := time.Now()
		if err := e.Run(batch, in, out); err != nil {
			return 0, err
		}
		took = append(took, time.Since(t))
	}
	slices.Sort(took)
	macs := float64(len(p.Ops)-1) * probeN * probeK * float64(rows) * rowLimbs
	return macs / took[len(took)/2].Seconds() / 1e9, nil
}
