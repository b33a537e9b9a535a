package transport_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
		&transport.Hello{Wire: 2, Numerics: 1, Role: transport.RoleHop, Ring: ring, Build: "v0.1.0", Backend: "cpu avx512",
			Model: "org/name@0123abc", Fingerprint: filled(1), Weights: 1, First: 0, Last: 11, Layers: 24, Hidden: 896,
			Context: 4096, MaxSessions: 8, Threads: 2, CapacityGMACs: 123.5, MemoryBytes: 1 << 34, ProbeHash: filled(2), TokenizerHash: filled(3), Watch: true, Readout: true},
		&transport.Hello{Wire: 2, Numerics: 1, Last: -1},
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
		&transport.Ask{Seq: 7, TokenIdx: 42, Top: 40},
	}
}

// readVector reads an annotated encoding: lines "field : hex bytes", comments, and "# error: TEXT" when it must be refused.
func readVector(t *testing.T, path string) (frame []byte, wantErr string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if text, ok := strings.CutPrefix(line, "# error: "); ok {
			wantErr = text
		}
		if line == "" || line[0] == '#' {
			continue
		}
		_, digits, ok := strings.Cut(line, ":")
		raw, err := hex.DecodeString(strings.ReplaceAll(digits, " ", ""))
		if !ok || err != nil {
			t.Fatalf("%s: %q: %v", path, line, err)
		}
		frame = append(frame, raw...)
	}
	return frame, wantErr
}

func vectorFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/vectors/*.txt")
	if err != nil || len(files) < 30 {
		t.Fatalf("%d vectors found: %v", len(files), err)
	}
	return files
}

// The vectors were made by another program, from WIRE.md. What each says as a Go value stands in goodVectors.
func goodVectors() map[string]transport.Frame {
	s := samples()
	return map[string]transport.Frame{
		"hello": s[0], "hello-empty": s[1], "assignment": s[2], "ready": s[3], "activation": s[4], "token": s[6],
		"finished": s[7], "receipt": s[8], "receipt-empty": s[9], "fault": s[10], "ask": s[11],
		"activation-nan": &transport.Activation{Seq: 1, NextIndex: 2, ActHash: 0x9520f8fc, ModelHash: 1,
			Hidden: []float32{math.Float32frombits(0x7f800001), math.Float32frombits(0x80000000)}},
	}
}

func TestVectors(t *testing.T) {
	good := goodVectors()
	for _, path := range vectorFiles(t) {
		name := strings.TrimSuffix(filepath.Base(path), ".txt")
		t.Run(name, func(t *testing.T) {
			frame, wantErr := readVector(t, path)
			got, err := transport.Parse(frame)
			if wantErr != "" {
				if !errors.Is(err, transport.ErrFrame) || !strings.HasSuffix(err.Error(), wantErr) {
					t.Fatalf("got %v, want an error that ends in %q", err, wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			want, ok := good[name]
			if !ok {
				t.Fatal("no value to compare with")
			}
			delete(good, name)
			encoded, err := transport.Marshal(want)
			if err != nil || !bytes.Equal(encoded, frame) {
				t.Errorf("marshalling gives %v\n%x, want\n%x", err, encoded, frame)
			}
			again, err := transport.Marshal(got)
			if err != nil || !bytes.Equal(again, frame) {
				t.Errorf("parsing and marshalling gives %v\n%x, want\n%x", err, again, frame)
			}
			if a, ok := got.(*transport.Activation); ok && !a.Intact() {
				t.Error("the hash does not fit the payload")
			}
		})
	}
	for name := range good {
		t.Errorf("no vector %s", name)
	}
}

// A frame that is cut anywhere, or has anything behind it, is refused.
func TestParseDemandsTheExactLength(t *testing.T) {
	for _, f := range samples() {
		whole, err := transport.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		for n := range whole {
			cut := bytes.Clone(whole[:n])
			if _, err := transport.Parse(cut); !errors.Is(err, transport.ErrFrame) {
				t.Fatalf("%s cut to %d of %d bytes: %v", f.Kind(), n, len(whole), err)
			}
			if n < 8 {
				continue
			}
			binary.LittleEndian.PutUint32(cut, uint32(n-4)) // a length that fits, fields that do not
			got, err := transport.Parse(cut)
			if err == nil && got.Kind() != transport.KindActivation {
				t.Fatalf("%s cut to %d of %d bytes passes", f.Kind(), n, len(whole))
			}
		}
		if _, err := transport.Parse(append(whole, 0)); !errors.Is(err, transport.ErrFrame) {
			t.Fatalf("%s with one byte more: %v", f.Kind(), err)
		}
	}
}

func TestMarshalRefuses(t *testing.T) {
	long := strings.Repeat("x", math.MaxUint16)
	for name, f := range map[string]transport.Frame{
		"string too long":        &transport.Token{Text: long + "x"},
		"string not UTF-8":       &transport.Token{Text: "\xff"},
		"control frame too long": &transport.Fault{Code: 1, Phase: long, Text: "x"},
		"role":                   &transport.Hello{Role: 3},
		"capacity infinite":      &transport.Hello{CapacityGMACs: math.Inf(1)},
		"no hidden state":        &transport.Activation{},
		"too many rows":          &transport.Receipt{Hashes: make([]uint64, transport.MaxReceiptRows+1)},
		"no fault code":          &transport.Fault{},
		"activation too long":    &transport.Activation{Hidden: make([]float32, transport.MaxFrame/4-5)},
	} {
		if b, err := transport.Marshal(f); !errors.Is(err, transport.ErrFrame) {
			t.Errorf("%s: %d bytes, %v", name, len(b), err)
		}
	}
	for name, f := range map[string]transport.Frame{
		"most rows":    &transport.Receipt{Hashes: make([]uint64, transport.MaxReceiptRows)},
		"longest text": &transport.Token{Text: long[:transport.MaxControl-18]},
	} {
		b, err := transport.Marshal(f)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if _, err := transport.Parse(b); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestHashes(t *testing.T) {
	// "12345678" as two numbers: CRC-32C and SHA-256 of known text.
	p := []float32{math.Float32frombits(0x34333231), math.Float32frombits(0x38373635)}
	if got := transport.ActHash(p); got != 0x6087809a {
		t.Errorf("ActHash is %08x", got)
	}
	sum := sha256.Sum256([]byte("12345678"))
	if got := transport.RowHash(p); got != binary.LittleEndian.Uint64(sum[:8]) {
		t.Errorf("RowHash is %016x", got)
	}
	if transport.ActHash(nil) != 0 {
		t.Error("ActHash of nothing is not 0")
	}
}

func TestFloatEncodingsAgree(t *testing.T) {
	p := []float32{0, float32(math.Copysign(0, -1)), 1, -1.5, math.MaxFloat32, math.SmallestNonzeroFloat32,
		float32(math.Inf(-1)), math.Float32frombits(0x7f800001)}
	each, swapped := transport.Bytewise(p)
	if string(each) != string(transport.NativeBytes(p)) {
		t.Error("the encodings of the two kinds of machine differ")
	}
	for i := range p {
		if binary.BigEndian.Uint32(each[4*i:]) != math.Float32bits(swapped[i]) {
			t.Errorf("number %d: %08x swapped is %08x", i, math.Float32bits(p[i]), math.Float32bits(swapped[i]))
		}
	}
}

func TestActivationMemory(t *testing.T) {
	a := transport.NewActivation(1000)
	for i := range a.Hidden {
		a.Hidden[i] = float32(i)
	}
	a.Seal()
	b, err := transport.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	a.Hidden[999]++
	if a.Intact() {
		t.Error("a changed payload passes for intact")
	}
	a.Release()
	a.Release() // harmless
	parsed, err := transport.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	clear(b)
	if p := parsed.(*transport.Activation); !p.Intact() || p.Hidden[999] != 999 {
		t.Error("the parsed activation shares memory with its bytes")
	}
	for _, n := range []int{1, 8, 9, 1017, 1018, 1 << 22} {
		if a := transport.NewActivation(n); len(a.Hidden) != n || cap(a.Hidden) != n {
			t.Errorf("NewActivation(%d) has %d numbers of %d", n, len(a.Hidden), cap(a.Hidden))
		}
	}
}

func TestFaultIsAnErrorFitForATerminal(t *testing.T) {
	f := &transport.Fault{Seq: 3, Stage: 2, Code: transport.FaultLoad, Phase: "loading", LastPos: -1, Text: "\x1b[2Jgone\r\nroot#"}
	if got, want := f.Error(), "stage 2: load failed during loading: \ufffd[2Jgone\ufffd\ufffdroot#"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := transport.FaultCode(999).String(); got != "fault 999" {
		t.Errorf("unknown code is %q", got)
	}
}

// Whatever parses is what it would be marshalled to: there is one encoding for each frame.
func FuzzParse(f *testing.F) {
	for _, frame := range samples() {
		b, err := transport.Marshal(frame)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b[4:])
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		// The length is set right, or nearly every input would fail there.
		b := binary.LittleEndian.AppendUint32(nil, uint32(len(p)))
		b = append(b, p...)
		frame, err := transport.Parse(b)
		if err != nil {
			if !errors.Is(err, transport.ErrFrame) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		again, err := transport.Marshal(frame)
		if err != nil || !bytes.Equal(again, b) {
			t.Fatalf("%+v marshals to %v\n%x, was\n%x", frame, err, again, b)
		}
	})
}

// Parse and the length check take any bytes, length field included.
func FuzzParseRaw(f *testing.F) {
	for _, frame := range samples() {
		b, err := transport.Marshal(frame)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		if frame, err := transport.Parse(p); err == nil {
			if again, err := transport.Marshal(frame); err != nil || !bytes.Equal(again, p) {
				t.Fatalf("%+v marshals to %v\n%x, was\n%x", frame, err, again, p)
			}
		}
	})
}

func FuzzParsePeerAddr(f *testing.F) {
	for _, s := range []string{"a", "a:1", "[::1]", "::1", "[::1]:7", "SHA256:" + strings.Repeat("A", 43) + "@h:1", "u@h", "h:"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := transport.ParsePeerAddr(s)
		if err != nil {
			return
		}
		if again, err := transport.ParsePeerAddr(a.String()); err != nil || again != a {
			t.Fatalf("%q is %+v, whose text is %+v, %v", s, a, again, err)
		}
	})
}
