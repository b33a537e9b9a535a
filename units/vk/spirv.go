//go:build linux && (amd64 || arm64) && cgo && !novulkan

package vk

import (
	"encoding/binary"
	"errors"
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
	for i := spirvHeaderWords; i < len(words); {
		n, op := int(words[i]>>16), words[i]&0xffff
		if n == 0 || i+n > len(words) {
			return nil, errors.New("a SPIR-V module with a broken instruction")
		}
		if op == opFunction {
			return append(out, words[i:]...), nil
		}
		drop := false
		switch {
		case op == opCapability && n == 2:
			drop = words[i+1] == capRoundRTE && !rte || words[i+1] == capPreserveNaN && !preserve
		case op == opExecutionMode && n >= 3:
			drop = words[i+2] == modeRoundRTE && !rte || words[i+2] == modePreserveNaN && !preserve
		case op == opExtension:
			drop = !rte && !preserve && stringOf(words[i+1:i+n]) == "SPV_KHR_float_controls"
		}
		if !drop {
			out = append(out, words[i:i+n]...)
		}
		i += n
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
