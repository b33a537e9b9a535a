//go:build linux && (amd64 || arm64) && cgo && !novulkan

package vk

import (
	"errors"
	"fmt"
	"slices"
)

// The parts of SPIR-V that instrument knows besides those of withModes.
const (
	opEntryPoint        = 15
	opTypeVoid          = 19
	opTypeBool          = 20
	opTypeInt           = 21
	opTypeVector        = 23
	opTypeArray         = 28
	opTypeRuntimeArray  = 29
	opTypeStruct        = 30
	opTypePointer       = 32
	opConstant          = 43
	opFunctionParameter = 55
	opFunctionEnd       = 56
	opFunctionCall      = 57
	opVariable          = 59
	opLoad              = 61
	opStore             = 62
	opAccessChain       = 65
	opInBoundsChain     = 66
	opArrayLength       = 68
	opDecorate          = 71
	opMemberDecorate    = 72
	opSelect            = 169
	opINotEqual         = 171
	opULessThan         = 176
	opSelectionMerge    = 247
	opLabel             = 248
	opBranch            = 249
	opBranchConditional = 250
	opReturn            = 253
	opExecutionModeID   = 331

	classWorkgroup = 4
	classPrivate   = 6
	classStorage   = 12

	decorationBlock   = 2
	decorationStride  = 6
	decorationBinding = 33
	decorationSet     = 34
	decorationOffset  = 35
)

// checkedModule is a module while it is instrumented: beside each index stands a comparison with the length, the last failure is
// kept in a variable, and a new entry point reports that after the old one has ended.
type checkedModule struct {
	binding, slot uint32
	places        []string

	next     uint32              // id
	types    map[uint32][]uint32 // of an id: the instruction that declares a type
	vars     map[uint32]uint32   // the pointer type of a variable
	consts   map[uint32]uint32   // the value of a constant of 32 bits
	bindings map[uint32]uint32   // of a variable

	decorations, globals  []uint32 // to be added
	void, fnType, entry   uint32
	boolean, word         uint32
	zero, failed, pointer uint32 // the variable, and the type of a pointer into the report
	buffer, place         uint32 // the report and the constant that is this module's index into it
	newEntry              uint32
}

func (m *checkedModule) id() uint32 {
	m.next++
	return m.next - 1
}

// emit appends an instruction.
func emit(to *[]uint32, op uint32, operands ...uint32) {
	*to = append(append(*to, uint32(len(operands)+1)<<16|op), operands...)
}

// constant is a new one.
func (m *checkedModule) constant(v uint32) uint32 {
	id := m.id()
	emit(&m.globals, opConstant, m.word, id, v)
	return id
}

func (m *checkedModule) instrument(code []uint32) ([]uint32, error) {
	if err := m.read(code); err != nil {
		return nil, err
	}
	m.declare()
	body := slices.Clone(code[:spirvHeaderWords])
	for in, err := range instructions(code) {
		if err == nil {
			err = m.copy(&body, in)
		}
		if err != nil {
			return nil, err
		}
	}
	out := slices.Clone(code[:spirvHeaderWords])
	inTypes, inFunctions := false, false
	for in, err := range instructions(body) {
		if err != nil {
			return nil, err
		}
		op := opOf(in)
		if !inTypes && op >= opTypeVoid && op < opDecorate {
			inTypes = true
			out = append(out, m.decorations...)
		}
		if !inFunctions && op == opFunction {
			inFunctions = true
			out = append(out, m.globals...)
		}
		out = append(out, in...)
	}
	m.report(&out)
	out[3] = m.next
	return out, nil
}

// read finds what the module declares.
func (m *checkedModule) read(code []uint32) error {
	m.next = code[3]
	m.types, m.vars, m.consts, m.bindings = map[uint32][]uint32{}, map[uint32]uint32{}, map[uint32]uint32{}, map[uint32]uint32{}
	for in, err := range instructions(code) {
		if err != nil {
			return err
		}
		switch op := opOf(in); op {
		case opEntryPoint:
			m.entry = in[2]
		case opDecorate:
			if in[2] == decorationBinding {
				m.bindings[in[1]] = in[3]
			}
		case opConstant:
			m.consts[in[2]] = in[3]
		case opVariable, opFunctionParameter:
			m.vars[in[2]] = in[1]
		case opFunction:
			if in[2] == m.entry {
				m.void, m.fnType = in[1], in[4]
			}
		default:
			if op >= opTypeVoid && op <= opTypePointer {
				m.types[in[1]] = in
			}
			switch {
			case op == opTypeBool:
				m.boolean = in[1]
			case op == opTypeInt && in[2] == 32 && in[3] == 0:
				m.word = in[1]
			}
		}
	}
	if m.entry == 0 || m.fnType == 0 {
		return errors.New("a SPIR-V module without an entry point")
	}
	return nil
}

// declare adds the report and what else the checks use.
func (m *checkedModule) declare() {
	if m.boolean == 0 {
		m.boolean = m.id()
		emit(&m.globals, opTypeBool, m.boolean)
	}
	if m.word == 0 {
		m.word = m.id()
		emit(&m.globals, opTypeInt, m.word, 32, 0)
	}
	m.zero, m.place, m.newEntry = m.constant(0), m.constant(m.slot), m.id()
	private := m.id()
	emit(&m.globals, opTypePointer, private, classPrivate, m.word)
	m.failed = m.id()
	emit(&m.globals, opVariable, private, m.failed, classPrivate, m.zero)

	array, block, toBlock := m.id(), m.id(), m.id()
	emit(&m.globals, opTypeRuntimeArray, array, m.word)
	emit(&m.globals, opTypeStruct, block, array)
	emit(&m.globals, opTypePointer, toBlock, classStorage, block)
	m.pointer, m.buffer = m.id(), m.id()
	emit(&m.globals, opTypePointer, m.pointer, classStorage, m.word)
	emit(&m.globals, opVariable, toBlock, m.buffer, classStorage)
	emit(&m.decorations, opDecorate, array, decorationStride, 4)
	emit(&m.decorations, opMemberDecorate, block, 0, decorationOffset, 0)
	emit(&m.decorations, opDecorate, block, decorationBlock)
	emit(&m.decorations, opDecorate, m.buffer, decorationSet, 0)
	emit(&m.decorations, opDecorate, m.buffer, decorationBinding, m.binding)
}

// copy appends an instruction, after the checks of its indices; what names the old entry point names the new one.
func (m *checkedModule) copy(to *[]uint32, in []uint32) error {
	switch op := opOf(in); op {
	case opAccessChain, opInBoundsChain:
		if err := m.check(to, in[3], in[4:]); err != nil {
			return err
		}
	case opEntryPoint, opExecutionMode, opExecutionModeID:
		at := 1
		if op == opEntryPoint {
			at = 2
		}
		in = slices.Clone(in)
		in[at] = m.newEntry
	}
	*to = append(*to, in...)
	return nil
}

// check compares the indices into a variable with the lengths that they must be below.
func (m *checkedModule) check(to *[]uint32, variable uint32, indices []uint32) error {
	pointer, ok := m.types[m.vars[variable]]
	if !ok {
		return fmt.Errorf("a SPIR-V module with indices into %%%d, which is no variable", variable)
	}
	place := "an array of an invocation"
	if b, ok := m.bindings[variable]; ok {
		place = fmt.Sprintf("binding %d", b)
	} else if pointer[2] == classWorkgroup {
		place = "an array of a workgroup"
	}
	at := pointer[3]
	for i, index := range indices {
		t := m.types[at]
		if t == nil { // a cooperative matrix
			break
		}
		value, known := m.consts[index]
		switch opOf(t) {
		case opTypeStruct:
			if !known {
				return errors.New("a SPIR-V module with a member that is no constant")
			}
			at = t[2+value]
			continue
		case opTypeRuntimeArray:
			length := m.id()
			emit(to, opArrayLength, m.word, length, variable, m.consts[indices[i-1]])
			m.compare(to, index, length, place)
		case opTypeArray:
			if length, fixed := m.consts[t[3]]; !known || !fixed || value >= length {
				m.compare(to, index, t[3], place)
			}
		}
		at = t[2]
	}
	return nil
}

// compare keeps the number of the place unless index < length.
func (m *checkedModule) compare(to *[]uint32, index, length uint32, place string) {
	m.places = append(m.places, fmt.Sprintf("%s (index %d of the module)", place, len(m.places)+1))
	within, old, kept := m.id(), m.id(), m.id()
	number := m.constant(uint32(len(m.places)))
	emit(to, opULessThan, m.boolean, within, index, length)
	emit(to, opLoad, m.word, old, m.failed)
	emit(to, opSelect, m.word, kept, within, old, number)
	emit(to, opStore, m.failed, kept)
}

// report appends the new entry point.
func (m *checkedModule) report(to *[]uint32) {
	result, failed, any, at := m.id(), m.id(), m.id(), m.id()
	begin, then, end := m.id(), m.id(), m.id()
	emit(to, opFunction, m.void, m.newEntry, 0, m.fnType)
	emit(to, opLabel, begin)
	emit(to, opFunctionCall, m.void, result, m.entry)
	emit(to, opLoad, m.word, failed, m.failed)
	emit(to, opINotEqual, m.boolean, any, failed, m.zero)
	emit(to, opSelectionMerge, end, 0)
	emit(to, opBranchConditional, any, then, end)
	emit(to, opLabel, then)
	emit(to, opAccessChain, m.pointer, at, m.buffer, m.zero, m.place)
	emit(to, opStore, at, failed)
	emit(to, opBranch, end)
	emit(to, opLabel, end)
	emit(to, opReturn)
	emit(to, opFunctionEnd)
}
