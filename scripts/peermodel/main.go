// Command peermodel writes a GGUF file of the shape of Qwen2.5 0.5B with random Q8_0 weights and no vocabulary, for
// measuring llama.cpp beside dchain:
//
//	go run ./scripts/peermodel qwen2.5-0.5b-q8_0.gguf
package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
)

// Types of values and of tensors in GGUF.
const (
	valueU32    = 4
	valueF32    = 6
	valueString = 8
	tensorF32   = 0
	tensorQ8    = 8 // blocks of 32: a float16 scale, 32 int8
	alignment   = 32
	blockBytes  = 34
)

const hidden, inter, layers, vocab, kv = 896, 4864, 24, 151936, 128

type tensor struct {
	name string
	dims []uint64 // fastest first
	kind uint32
}

func (t *tensor) values() uint64 {
	n := uint64(1)
	for _, d := range t.dims {
		n *= d
	}
	return n
}

func (t *tensor) bytes() uint64 {
	if t.kind == tensorQ8 {
		return t.values() / 32 * blockBytes
	}
	return 4 * t.values()
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: peermodel FILE")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "peermodel:", err)
		os.Exit(1)
	}
}

func tensors() []tensor {
	matrix := func(name string, in, out uint64) tensor { return tensor{name, []uint64{in, out}, tensorQ8} }
	vector := func(name string, n uint64) tensor { return tensor{name, []uint64{n}, tensorF32} }
	all := []tensor{matrix("token_embd.weight", hidden, vocab), vector("output_norm.weight", hidden)}
	for i := range layers {
		b := fmt.Sprintf("blk.%d.", i)
		all = append(all,
			vector(b+"attn_norm.weight", hidden),
			matrix(b+"attn_q.weight", hidden, hidden), vector(b+"attn_q.bias", hidden),
			matrix(b+"attn_k.weight", hidden, kv), vector(b+"attn_k.bias", kv),
			matrix(b+"attn_v.weight", hidden, kv), vector(b+"attn_v.bias", kv),
			matrix(b+"attn_output.weight", hidden, hidden),
			vector(b+"ffn_norm.weight", hidden),
			matrix(b+"ffn_gate.weight", hidden, inter), matrix(b+"ffn_up.weight", hidden, inter), matrix(b+"ffn_down.weight", inter, hidden))
	}
	return all
}

func write(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	w := &writer{w: bufio.NewWriterSize(f, 1<<20)}
	all := tensors()
	keys := []struct {
		name  string
		value any
	}{
		{"general.architecture", "qwen2"}, {"general.file_type", uint32(7)}, {"general.quantization_version", uint32(2)},
		{"general.alignment", uint32(alignment)}, {"qwen2.block_count", uint32(layers)}, {"qwen2.context_length", uint32(32768)},
		{"qwen2.embedding_length", uint32(hidden)}, {"qwen2.feed_forward_length", uint32(inter)},
		{"qwen2.attention.head_count", uint32(14)}, {"qwen2.attention.head_count_kv", uint32(2)},
		{"qwen2.attention.layer_norm_rms_epsilon", float32(1e-6)}, {"qwen2.rope.freq_base", float32(1e6)},
		{"qwen2.vocab_size", uint32(vocab)}, {"tokenizer.ggml.model", "no_vocab"},
	}
	w.put([]byte("GGUF"), uint32(3), uint64(len(all)), uint64(len(keys)))
	for _, k := range keys {
		w.text(k.name)
		switch v := k.value.(type) {
		case uint32:
			w.put(uint32(valueU32), v)
		case float32:
			w.put(uint32(valueF32), v)
		case string:
			w.put(uint32(valueString))
			w.text(v)
		}
	}
	offset := uint64(0)
	for _, t := range all {
		w.text(t.name)
		w.put(uint32(len(t.dims)), t.dims, t.kind, offset)
		offset += (t.bytes() + alignment - 1) / alignment * alignment
	}
	w.align()
	rng := rand.New(rand.NewPCG(1, 2))
	for _, t := range all {
		if t.kind == tensorF32 {
			for range t.values() {
				w.put(float32(1))
			}
		} else {
			w.blocks(t.values()/32, rng)
		}
		w.align()
	}
	if w.err == nil {
		w.err = w.w.Flush()
	}
	if w.err != nil {
		return w.err
	}
	return f.Close()
}

// writer counts what it writes and keeps the first error.
type writer struct {
	w   *bufio.Writer
	n   int
	err error
}

func (w *writer) put(values ...any) {
	for _, v := range values {
		if w.err == nil {
			w.n += binary.Size(v)
			w.err = binary.Write(w.w, binary.LittleEndian, v)
		}
	}
}

func (w *writer) text(s string) { w.put(uint64(len(s)), []byte(s)) }

func (w *writer) align() { w.put(make([]byte, (alignment-w.n%alignment)%alignment)) }

// blocks writes random blocks of Q8_0.
func (w *writer) blocks(n uint64, rng *rand.Rand) {
	block := make([]byte, blockBytes)
	binary.LittleEndian.PutUint16(block, 0x0c00) // 2^-12 as float16
	for range n {
		for i := 2; i+8 <= len(block); i += 8 {
			binary.LittleEndian.PutUint64(block[i:], rng.Uint64())
		}
		w.put(block)
	}
}
