package shaders

import (
	"encoding/binary"
	"fmt"
	"io/fs"
	"testing"
)

// SPIR-V, from its specification.
const (
	spirvMagic  = 0x07230203
	headerWords = 5

	opExtInst             = 12
	opCapability          = 17
	opDecorate            = 71
	opFAdd                = 129
	opFSub                = 131
	opFMul                = 133
	opFDiv                = 136
	opFRem                = 140
	opFMod                = 141
	opSRem                = 138
	opSMod                = 139
	opDot                 = 148
	opVectorTimesScalar   = 142
	opMatrixFirst         = 143 // to opMatrixLast: other products of vectors and matrices
	opMatrixLast          = 147
	noContraction         = 42
	opMatrixTimesScalar   = 143
	capabilityInt8        = 39
	capabilityInt64       = 11
	capabilityCooperative = 6022 // matrices, whose elements are int8; devices that have them have int64
	relaxedPrecision      = 0
)

// optionalCapabilities are types of 8, 16 and 64 bits, and storage of 8 and 16.
var optionalCapabilities = map[uint32]bool{9: true, 10: true, 11: true, 22: true, 39: true,
	4433: true, 4434: true, 4435: true, 4436: true, 4448: true, 4449: true, 4450: true}

// exactInstructions are those of GLSL.std.450 that give the same bits everywhere: RoundEven, FAbs, SAbs, the integer
// minima, maxima and clamps, and the searches for bits.
var exactInstructions = map[uint32]bool{2: true, 4: true, 5: true, 38: true, 39: true, 41: true, 42: true, 44: true, 45: true, 73: true, 74: true, 75: true}

// TestPortable holds every shader to what NUMERICS.md can rely on: float arithmetic is addition, subtraction and
// multiplication that must not be contracted, and no type or storage is one that a device may lack.
func TestPortable(t *testing.T) {
	names, err := fs.Glob(files, "*.spv")
	if err != nil || len(names) == 0 {
		t.Fatalf("no shaders: %v", err)
	}
	for _, name := range names {
		code, err := files.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, fault := range faults(words(code)) {
			t.Errorf("%s: %s", name, fault)
		}
	}
}

// TestFaultsFound takes NoContraction off a shader.
func TestFaultsFound(t *testing.T) {
	code, err := Code("norm")
	if err != nil {
		t.Fatal(err)
	}
	module := words(code)
	for at := headerWords; at < len(module); at += int(module[at] >> 16) {
		if module[at]&0xffff == opDecorate && module[at+2] == noContraction {
			module[at+2] = relaxedPrecision
		}
	}
	if len(faults(module)) == 0 {
		t.Error("float operations that may be contracted are not found")
	}
}

func words(code []byte) []uint32 {
	w := make([]uint32, len(code)/4)
	for i := range w {
		w[i] = binary.LittleEndian.Uint32(code[4*i:])
	}
	return w
}

// faults lists what is not portable in a module.
func faults(module []uint32) (found []string) {
	fault := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	if len(module) < headerWords || module[0] != spirvMagic {
		fault("not a SPIR-V module")
		return found
	}
	// Capabilities come first.
	cooperative := false
	for at := headerWords; at+1 < len(module) && module[at]&0xffff == opCapability; at += 2 {
		cooperative = cooperative || module[at+1] == capabilityCooperative
	}
	exact := map[uint32]bool{} // results decorated NoContraction: decorations come before functions
	for at := headerWords; at < len(module); {
		op, n := module[at]&0xffff, int(module[at]>>16)
		if n == 0 || at+n > len(module) {
			fault("word %d: an instruction of %d words", at, n)
			return found
		}
		in := module[at : at+n]
		at += n
		switch {
		case op == opDecorate && in[2] == noContraction:
			exact[in[1]] = true
		case (op == opFAdd || op == opFSub || op == opFMul || op == opVectorTimesScalar) && !exact[in[2]]:
			fault("result %d of instruction %d may be contracted: it is not precise", in[2], op)
		case op == opFDiv || op == opFRem || op == opFMod || op == opDot,
			op >= opMatrixFirst && op <= opMatrixLast && !(cooperative && op == opMatrixTimesScalar):
			fault("instruction %d is not rounded alike everywhere", op)
		case op == opSRem || op == opSMod:
			fault("instruction %d: a signed remainder is not the same everywhere", op)
		case op == opExtInst && !exactInstructions[in[4]]:
			fault("extended instruction %d is not known to be exact", in[4])
		case op == opCapability && optionalCapabilities[in[1]] && !(cooperative && (in[1] == capabilityInt8 || in[1] == capabilityInt64)):
			fault("capability %d, which a device may lack", in[1])
		}
	}
	return found
}
