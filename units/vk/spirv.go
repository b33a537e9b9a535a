//go:build linux && (amd64 || arm64) && cgo && !novulkan

package vk

import (
	"encoding/binary"
	"errors"
	"iter"
)

// The SPIR-V words that withModes looks for.
const (
	spirvMagic       = 0x07230203
	opExtension      = 10
	opExecutionMode  = 16
	opCapability     = 17
	opFunction       = 54
	capPreserveNaN   = 4466
	modePreserveNaN  = 4461
	capRoundRTE      = 4467
	modeRoundRTE     = 4462
	spirvHeaderWords = 5
)

// instructions are those of a module, each with its operands; an error ends them.
func instructions(code []uint32) iter.Seq2[[]uint32, error] {
	return func(yield func([]uint32, error) bool) {
		for rest := code[spirvHeaderWords:]; len(rest) > 0; {
			n := int(rest[0] >> 16)
			if n == 0 || n > len(rest) {
				yield(nil, errors.New("a SPIR-V module with a broken instruction"))
				return
			}
			if !yield(rest[:n], nil) {
				return
			}
			rest = rest[n:]
		}
	}
}

// opOf is what an instruction does.
func opOf(in []uint32) uint32 { return in[0] & 0xffff }

// withModes decodes a SPIR-V module, leaving out the float execution modes that the device does not have.
func withModes(code []byte, rte, preserve bool) ([]uint32, error) {
	if len(code)%4 != 0 || len(code) < 4*spirvHeaderWords || binary.LittleEndian.Uint32(code) != spirvMagic {
		return nil, errors.New("not a SPIR-V module")
	}
	words := make([]uint32, len(code)/4)
	for i := range words {
		words[i] = binary.LittleEndian.Uint32(code[4*i:])
	}
	out := append([]uint32(nil), words[:spirvHeaderWords]...)
	at := spirvHeaderWords
	for in, err := range instructions(words) {
		if err != nil {
			return nil, err
		}
		drop := false
		switch op := opOf(in); {
		case op == opFunction: // no modes follow
			return append(out, words[at:]...), nil
		case op == opCapability && len(in) == 2:
			drop = in[1] == capRoundRTE && !rte || in[1] == capPreserveNaN && !preserve
		case op == opExecutionMode && len(in) >= 3:
			drop = in[2] == modeRoundRTE && !rte || in[2] == modePreserveNaN && !preserve
		case op == opExtension:
			drop = !rte && !preserve && stringOf(in[1:]) == "SPV_KHR_float_controls"
		}
		if !drop {
			out = append(out, in...)
		}
		at += len(in)
	}
	return out, nil
}

// stringOf decodes a literal string.
func stringOf(words []uint32) string {
	var b []byte
	for _, w := range words {
		for range 4 {
			if byte(w) == 0 {
				return string(b)
			}
			b = append(b, byte(w))
			w >>= 8
		}
	}
	return string(b)
}
