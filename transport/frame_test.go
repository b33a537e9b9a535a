package transport_test

import (
	"dchain/transport"
)

func filled(b byte) (a [32]byte) {
	for i := range a {
		a[i] = b + byte(i)
	}
	return a
}

// samples has at least one frame of each kind.
func samples() []transport.Frame {
	ring := [16]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}
	act := transport.NewActivation(3)
	copy(act.Hidden, []float32{1, -2.5, 3e-20})
	act.Seq, act.TokenIdx, act.NextIndex, act.ModelHash = 7, 41, transport.Return, 0xdeadbeef
	act.Seal()
	return []transport.Frame{
		&transport.Hello{Wire: 1, Numerics: 1, Role: transport.RoleHop, Ring: ring, Build: "v0.1.0", Backend: "cpu avx512",
			Model: "org/name@0123abc", Fingerprint: filled(1), Weights: 1, First: 0, Last: 11, Layers: 24, Hidden: 896,
			Context: 4096, MaxSessions: 8, Threads: 2, CapacityGMACs: 123.5, MemoryBytes: 1 << 34, ProbeHash: filled(2), TokenizerHash: filled(3)},
		&transport.Hello{Wire: 1, Numerics: 1, Last: -1},
		&transport.Assignment{Ring: ring, Stage: 1, Stages: 3, Model: "org/näme", Fingerprint: filled(4), Weights: 2, First: 8,
			Last: 15, Context: 2048, Sessions: 4, NextAddr: "[::1]:7433", NextFingerprint: "SHA256:x", PrevFingerprint: "SHA256:y",
			Relay: true, ReturnAll: false, Trace: true},
		&transport.Ready{Ring: ring, Stage: 2, Relay: true, Detail: "no route to host", Fingerprint: filled(5), LoadMillis: 1234, BytesRead: 7 << 30},
		act,
		&transport.Activation{Seq: 1, Hidden: []float32{0}},
		&transport.Token{Seq: 7, TokenIdx: 42, ID: 151643, Text: " Zauberlehrling 🧙"},
		&transport.Finished{Seq: 7, Reason: "end of text", Steps: 43, ComputeMicros: 1 << 40, Rows: 55},
		&transport.Receipt{Seq: 7, TokenIdx: 42, Stage: 1, Micros: 999, Hashes: []uint64{1, 1 << 63}},
		&transport.Receipt{Seq: 7, TokenIdx: 43, Stage: 1},
		&transport.Fault{Seq: -1, Stage: 2, Code: transport.FaultNonFinite, Phase: "layer 9", LastPos: 41, Text: "NaN in channel 3"},
	}
}
