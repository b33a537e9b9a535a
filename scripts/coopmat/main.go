// Command coopmat rewrites a SPIR-V module from SPV_NV_cooperative_matrix, which Debian's glslang emits, to
// SPV_KHR_cooperative_matrix, which drivers take.
//
//	go run ./scripts/coopmat IN.spv OUT.spv
package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
)

// Opcodes and enumerants of the SPIR-V specification.
const (
	opExtension       = 10
	opCapability      = 17
	opTypeInt         = 21
	opConstantTrue    = 41
	opConstantFalse   = 42
	opConstant        = 43
	opLoad            = 61
	opCompositeMake   = 80
	opCompositeTake   = 81
	nvType            = 5358
	nvLoad            = 5359
	nvStore           = 5360
	nvMulAdd          = 5361
	nvLength          = 5362
	khrType           = 4456
	khrLoad           = 4457
	khrStore          = 4458
	khrMulAdd         = 4459
	khrLength         = 4460
	nvCapability      = 5357
	khrCapability     = 6022
	allSigned         = 0xf // operands of khrMulAdd: A, B, C and the result are signed
	magic             = 0x07230203
	headerWords       = 5
	nvExtension       = "SPV_NV_cooperative_matrix"
	khrExtension      = "SPV_KHR_cooperative_matrix"
	matrixA, matrixB  = 0, 1
	matrixAccumulator = 2
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: coopmat IN.spv OUT.spv")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintf(os.Stderr, "coopmat: %s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
}

func run(in, out string) error {
	data, err := os.ReadFile(in)
	if err != nil {
		return err
	}
	words := make([]uint32, len(data)/4)
	for i := range words {
		words[i] = binary.LittleEndian.Uint32(data[4*i:])
	}
	words, err = rewrite(words)
	if err != nil {
		return err
	}
	data = data[:0]
	for _, w := range words {
		data = binary.LittleEndian.AppendUint32(data, w)
	}
	return os.WriteFile(out, data, 0o644)
}

// instruction is an opcode and its operands.
type instruction struct {
	op   uint32
	args []uint32
}

func parse(words []uint32) ([]instruction, error) {
	if len(words) < headerWords || words[0] != magic {
		return nil, errors.New("not a SPIR-V module")
	}
	var list []instruction
	for i := headerWords; i < len(words); {
		n := int(words[i] >> 16)
		if n == 0 || i+n > len(words) {
			return nil, errors.New("a broken instruction")
		}
		list = append(list, instruction{words[i] & 0xffff, words[i+1 : i+n]})
		i += n
	}
	return list, nil
}

// rewrite gives each matrix type its use, which the other extension does not state, by what the products take it for, and
// each load and store its layout as an integer.
func rewrite(words []uint32) ([]uint32, error) {
	list, err := parse(words)
	if err != nil {
		return nil, err
	}
	use, err := uses(list)
	if err != nil {
		return nil, err
	}
	// 0, 1 and 2 as constants of type uint: layouts and uses.
	number := words[3]
	out := append([]uint32(nil), words[:headerWords]...)
	out[3] += 3
	columns := map[uint32]uint32{} // by boolean constant: 1 for column major
	placed := false
	emit := func(op uint32, args ...uint32) { out = append(append(out, uint32(len(args)+1)<<16|op), args...) }
	layout := func(constant uint32) (uint32, error) {
		v, ok := columns[constant]
		if !ok {
			return 0, fmt.Errorf("a matrix is moved with a layout that is no constant")
		}
		return number + v, nil
	}
	for _, in := range list {
		a := in.args
		switch in.op {
		case opCapability:
			if a[0] == nvCapability {
				a = []uint32{khrCapability}
			}
			emit(in.op, a...)
		case opExtension:
			if text(a) == nvExtension {
				a = literal(khrExtension)
			}
			emit(in.op, a...)
		case opTypeInt:
			emit(in.op, a...)
			if a[1] == 32 && a[2] == 0 && !placed {
				placed = true
				for i := range uint32(3) {
					emit(opConstant, a[0], number+i, i)
				}
			}
		case opConstantTrue, opConstantFalse:
			emit(in.op, a...)
			columns[a[1]] = 0
			if in.op == opConstantTrue {
				columns[a[1]] = 1
			}
		case nvType:
			u, ok := use[a[0]]
			if !ok || !placed {
				return nil, errors.New("a matrix type that no product uses")
			}
			emit(khrType, append(append([]uint32(nil), a...), number+u)...)
		case nvLoad:
			l, err := layout(a[4])
			if err != nil {
				return nil, err
			}
			emit(khrLoad, append([]uint32{a[0], a[1], a[2], l, a[3]}, a[5:]...)...)
		case nvStore:
			l, err := layout(a[3])
			if err != nil {
				return nil, err
			}
			emit(khrStore, append([]uint32{a[0], a[1], l, a[2]}, a[4:]...)...)
		case nvMulAdd:
			emit(khrMulAdd, append(append([]uint32(nil), a...), allSigned)...)
		case nvLength:
			emit(khrLength, a...)
		default:
			emit(in.op, a...)
		}
	}
	return out, nil
}

// uses says for each matrix type whether products take it as A, B or the accumulator.
func uses(list []instruction) (map[uint32]uint32, error) {
	types := map[uint32]uint32{} // of values that may be matrices
	use := map[uint32]uint32{}
	for _, in := range list {
		switch in.op {
		case opLoad, opCompositeMake, opCompositeTake, nvLoad, nvMulAdd:
			types[in.args[1]] = in.args[0]
		}
		if in.op != nvMulAdd {
			continue
		}
		for i, value := range in.args[2:5] {
			t, ok := types[value]
			if !ok {
				return nil, errors.New("a product of a value whose type is not known")
			}
			want := []uint32{matrixA, matrixB, matrixAccumulator}[i]
			if u, ok := use[t]; ok && u != want {
				return nil, errors.New("a matrix type with two uses: give its sizes constants of their own")
			}
			use[t] = want
		}
	}
	return use, nil
}

// text decodes a literal string, literal encodes one.
func text(words []uint32) string {
	var b []byte
	for _, w := range words {
		b = binary.LittleEndian.AppendUint32(b, w)
	}
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}

func literal(s string) []uint32 {
	b := append([]byte(s), 0)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	var words []uint32
	for i := 0; i < len(b); i += 4 {
		words = append(words, binary.LittleEndian.Uint32(b[i:]))
	}
	return words
}
