package inspect

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"
)

// A safetensors file is an 8-byte little-endian length, that many bytes of JSON, and the data. The JSON maps each
// tensor name to its dtype, shape and [begin, end) offsets relative to the data.

const (
	// maxHeader is the largest header the format allows.
	maxHeader = 100_000_000
	// maxDims and maxDepth bound what a header may make the parser hold.
	maxDims  = 32
	maxDepth = 32
	// maxBytes bounds offsets so that sums of a few of them cannot overflow.
	maxBytes = int64(1) << 60
)

// dtypeBits is the element size in bits. A dtype that is not listed is kept in the index with its stated range.
var dtypeBits = map[DType]int64{
	"F64": 64, "I64": 64, "U64": 64, "C64": 64,
	"F32": 32, "I32": 32, "U32": 32,
	"F16": 16, "BF16": 16, "I16": 16, "U16": 16,
	"F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "I8": 8, "U8": 8, "BOOL": 8,
	"F4": 4,
}

// headerLen reads the header length from the first bytes of a file of size bytes.
func headerLen(first []byte, size int64) (int64, error) {
	if size < 8 || len(first) < 8 {
		return 0, fmt.Errorf("not a safetensors file: %d bytes, at least 8 expected", size)
	}
	n := binary.LittleEndian.Uint64(first)
	if n > maxHeader {
		return 0, fmt.Errorf("not a safetensors file: header length %d exceeds %d bytes", n, maxHeader)
	}
	if int64(n) > size-8 {
		return 0, fmt.Errorf("file is truncated: its header needs %d bytes, found %d", n+8, size)
	}
	return int64(n), nil
}

// parseHeader parses the JSON header of a file of size bytes. The tensors are sorted by offset; they follow each other
// without holes or overlap and end where the file does.
func parseHeader(file string, header []byte, size int64) ([]Tensor, error) {
	if !utf8.Valid(header) {
		return nil, errors.New("header is not UTF-8")
	}
	if len(header) == 0 || header[0] != '{' {
		return nil, errors.New("header is not a JSON object")
	}
	dec := json.NewDecoder(bytes.NewReader(header))
	dec.UseNumber()
	p := headerParser{dec: dec, file: file, start: 8 + int64(len(header)), seen: map[string]bool{}}
	err := p.object(func(key string) error { return p.entry(key) })
	if err != nil {
		return nil, jsonError(err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, errors.New("header has text after its JSON object")
	}
	if err := checkLayout(p.tensors, p.start, size); err != nil {
		return nil, err
	}
	return p.tensors, nil
}

// jsonError says that a header ended early in words a reader of the error can use.
func jsonError(err error) error {
	var syntax *json.SyntaxError
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &syntax) {
		return fmt.Errorf("header is not valid JSON: %w", err)
	}
	return err
}

// checkLayout sorts the tensors by offset and checks that they tile the data section of the file exactly.
func checkLayout(tensors []Tensor, start, size int64) error {
	slices.SortFunc(tensors, func(a, b Tensor) int {
		return cmp.Or(cmp.Compare(a.Begin, b.Begin), cmp.Compare(a.End, b.End), cmp.Compare(a.Name, b.Name))
	})
	end, last := start, ""
	for _, t := range tensors {
		switch {
		case t.Begin < end:
			return fmt.Errorf("tensors %q and %q overlap at byte %d", last, t.Name, t.Begin)
		case t.Begin > end:
			return fmt.Errorf("bytes %d to %d before tensor %q belong to no tensor", end, t.Begin, t.Name)
		}
		end, last = t.End, t.Name
	}
	switch {
	case end > size:
		return fmt.Errorf("file is truncated: its header describes %d bytes, found %d", end, size)
	case end < size:
		return fmt.Errorf("file is too long: its header describes %d bytes, found %d", end, size)
	}
	return nil
}

// headerParser walks a header token by token, so that duplicate names and deep nesting are seen.
type headerParser struct {
	dec     *json.Decoder
	file    string
	start   int64 // file offset of the data section
	seen    map[string]bool
	tensors []Tensor
}

// object reads an object and calls value for each key, which must consume the value. Duplicate keys of the outermost
// object are found by entry, those of a tensor by tensor.
func (p *headerParser) object(value func(key string) error) error {
	if err := p.delim('{'); err != nil {
		return err
	}
	for p.dec.More() {
		tok, err := p.dec.Token()
		if err != nil {
			return err
		}
		key, ok := tok.(string)
		if !ok {
			return fmt.Errorf("header is not valid JSON: key expected, found %v", tok)
		}
		if err := value(key); err != nil {
			return err
		}
	}
	return p.delim('}')
}

func (p *headerParser) delim(want json.Delim) error {
	tok, err := p.dec.Token()
	if err != nil {
		return err
	}
	if d, ok := tok.(json.Delim); !ok || d != want {
		return fmt.Errorf("%v expected, found %v", want, tok)
	}
	return nil
}

// entry reads one member of the header: the metadata, which is not used, or a tensor.
func (p *headerParser) entry(name string) error {
	if p.seen[name] {
		return fmt.Errorf("tensor %q is listed twice", name)
	}
	p.seen[name] = true
	if name == "__metadata__" {
		if err := p.skip(); err != nil {
			return fmt.Errorf("__metadata__: %w", err)
		}
		return nil
	}
	if err := p.tensor(name); err != nil {
		return fmt.Errorf("tensor %q: %w", name, err)
	}
	return nil
}

func (p *headerParser) tensor(name string) error {
	t := Tensor{Name: name, Shape: []int{}, Range: Range{File: p.file}}
	var offsets []int64
	seen := map[string]bool{}
	err := p.object(func(key string) error {
		if seen[key] {
			return fmt.Errorf("%s is given twice", key)
		}
		seen[key] = true
		switch key {
		case "dtype":
			tok, err := p.dec.Token()
			if err != nil {
				return err
			}
			s, ok := tok.(string)
			if !ok {
				return fmt.Errorf("dtype is %v, not a string", tok)
			}
			t.DType = DType(s)
		case "shape":
			dims, err := p.ints(key, maxDims)
			if err != nil {
				return err
			}
			for _, d := range dims {
				if d > math.MaxInt {
					return fmt.Errorf("dimension %d is out of range", d)
				}
				t.Shape = append(t.Shape, int(d))
			}
		case "data_offsets":
			var err error
			offsets, err = p.ints(key, 2)
			return err
		default:
			return p.skip()
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, key := range []string{"dtype", "shape", "data_offsets"} {
		if !seen[key] {
			return fmt.Errorf("%s is missing", key)
		}
	}
	if len(offsets) != 2 || offsets[0] > offsets[1] {
		return fmt.Errorf("data_offsets %v are not a range", offsets)
	}
	if err := checkSize(t, offsets[1]-offsets[0]); err != nil {
		return err
	}
	t.Begin, t.End = p.start+offsets[0], p.start+offsets[1]
	p.tensors = append(p.tensors, t)
	return nil
}

// checkSize compares the stated number of bytes with shape and dtype.
func checkSize(t Tensor, got int64) error {
	elems := int64(1)
	for _, d := range t.Shape {
		if d == 0 {
			elems = 0
			break
		}
		if elems > maxBytes/int64(d) {
			return fmt.Errorf("shape %v overflows", t.Shape)
		}
		elems *= int64(d)
	}
	bits, known := dtypeBits[t.DType]
	if !known {
		return nil
	}
	if elems > maxBytes/8 {
		return fmt.Errorf("shape %v overflows", t.Shape)
	}
	if want := (elems*bits + 7) / 8; want != got {
		return fmt.Errorf("shape %v of %s takes %d bytes, data_offsets span %d", t.Shape, t.DType, want, got)
	}
	return nil
}

// ints reads an array of at most limit integers in [0, maxBytes].
func (p *headerParser) ints(what string, limit int) ([]int64, error) {
	if err := p.delim('['); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	var out []int64
	for p.dec.More() {
		tok, err := p.dec.Token()
		if err != nil {
			return nil, err
		}
		num, ok := tok.(json.Number)
		if !ok {
			return nil, fmt.Errorf("%s holds %v, not a number", what, tok)
		}
		v, err := strconv.ParseInt(num.String(), 10, 64)
		if err != nil || v < 0 || v > maxBytes {
			return nil, fmt.Errorf("%s holds %s, not an integer from 0 to %d", what, num, maxBytes)
		}
		if len(out) == limit {
			return nil, fmt.Errorf("%s has more than %d numbers", what, limit)
		}
		out = append(out, v)
	}
	return out, p.delim(']')
}

// skip reads one value of any kind.
func (p *headerParser) skip() error {
	for depth := 0; ; {
		tok, err := p.dec.Token()
		if err != nil {
			return err
		}
		switch tok {
		case json.Delim('{'), json.Delim('['):
			if depth++; depth > maxDepth {
				return fmt.Errorf("nested deeper than %d", maxDepth)
			}
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if depth == 0 {
			return nil
		}
	}
}
