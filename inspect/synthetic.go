package inspect

import (
	"context"
	"encoding/binary"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"slices"
	"sort"
	"strings"
	"sync/atomic"
)

// Synthetic is a Source of random bf16 tensors in the shapes of a real model, made on demand: element i of a tensor
// depends on the model's name, the tensor's name and i alone, and is the same on every machine. It has no tokenizer.
type Synthetic struct {
	name    string
	config  string
	index   *Index
	tensors []synthTensor // by offset; they tile the one virtual file
	bytes   atomic.Int64
}

// synthTensor draws its elements from a table of 4,096 equally likely values.
type synthTensor struct {
	Tensor
	key   uint64
	table *synthTable
}

type synthTable [synthLevels]uint16

const synthLevels = 1 << 12

// NewSynthetic makes the synthetic model of that name (without "synthetic:"). An unknown name is an error that lists
// the known ones.
func NewSynthetic(name string) (*Synthetic, error) {
	model, ok := syntheticModels[name]
	if !ok {
		return nil, fmt.Errorf("unknown synthetic model %q (known: %s)", name,
			strings.Join(slices.Sorted(maps.Keys(syntheticModels)), ", "))
	}
	s := &Synthetic{name: name, config: model.config(), index: &Index{Tensors: map[string]Tensor{}}}
	tables := map[synthScale]*synthTable{}
	off := int64(0)
	for _, d := range model.tensors() {
		t := Tensor{Name: d.name, DType: BF16, Shape: d.shape}
		t.Range = Range{singleFile, off, off + 2*t.Elems()}
		off = t.End
		if tables[d.scale] == nil {
			tables[d.scale] = newSynthTable(d.scale)
		}
		s.index.Tensors[t.Name] = t
		s.tensors = append(s.tensors, synthTensor{t, hashName(name + "/" + d.name), tables[d.scale]})
	}
	s.index.Files = []FileInfo{{Name: singleFile, Size: off}}
	return s, nil
}

// hashName is 64-bit FNV-1a.
func hashName(name string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * 1099511628211
	}
	return h
}

// mix is a bijection that turns a counter into random-looking bits.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// synthScale is the mean and standard deviation of a tensor's elements.
type synthScale struct{ mean, sigma float64 }

// newSynthTable holds the quantiles of a near-normal distribution, rounded to bf16: the sum of 8 uniform integers from
// 0 to 127. They are counted in integers and scaled by correctly rounded operations only, so that every machine has
// the same table.
func newSynthTable(sc synthScale) *synthTable {
	counts := []uint64{1}
	for range 8 {
		next := make([]uint64, len(counts)+127)
		for i, c := range counts {
			for j := range 128 {
				next[i+j] += c
			}
		}
		counts = next
	}
	unit := sc.sigma / math.Sqrt(8*(128*128-1)/12.0)
	mid := float64(len(counts)-1) / 2
	var table synthTable
	sum, below := 0, uint64(0)
	for i := range table {
		rank := (2*uint64(i) + 1) << (56 - 13) // of 2^56 equally likely outcomes
		for below+counts[sum] <= rank {
			below += counts[sum]
			sum++
		}
		scaled := float64((float64(sum) - mid) * unit) // the conversion forbids a fused multiply-add
		table[i] = bf16(float32(sc.mean + scaled))
	}
	return &table
}

// bf16 rounds to nearest even.
func bf16(f float32) uint16 {
	bits := math.Float32bits(f)
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}

// fill writes elements first, first+1, ... of the tensor to p, two bytes each.
func (t *synthTensor) fill(p []byte, first int64) {
	group := uint64(first) / 4
	if skip := int(first % 4); skip != 0 {
		n := copy(p, t.four(group)[2*skip:])
		p = p[n:]
		group++
	}
	table := t.table
	for ; len(p) >= 8; p = p[8:] {
		h := mix(t.key + group*0x9e3779b97f4a7c15)
		group++
		v := uint64(table[h%synthLevels]) | uint64(table[h>>12%synthLevels])<<16 |
			uint64(table[h>>24%synthLevels])<<32 | uint64(table[h>>36%synthLevels])<<48
		binary.LittleEndian.PutUint64(p, v)
	}
	if len(p) > 0 {
		copy(p, t.four(group))
	}
}

// four returns one group of elements.
func (t *synthTensor) four(group uint64) []byte {
	p := make([]byte, 8)
	t.fill(p, int64(4*group))
	return p
}

func (s *Synthetic) ID() string { return "synthetic:" + s.name }
func (s *Synthetic) Location() string {
	return "synthetic:" + s.name + " (random tensors made on demand)"
}

// ReadFile knows config.json only.
func (s *Synthetic) ReadFile(_ context.Context, name string) ([]byte, error) {
	if name == "config.json" {
		s.bytes.Add(int64(len(s.config)))
		return []byte(s.config), nil
	}
	return nil, fmt.Errorf("reading %s of synthetic:%s: %w", name, s.name, fs.ErrNotExist)
}

func (s *Synthetic) Index(context.Context) (*Index, error) { return s.index, nil }

// Fetch has nothing to do.
func (s *Synthetic) Fetch(_ context.Context, ranges []Range, progress func(n int64)) error {
	return reportAll(ranges, progress)
}

func (s *Synthetic) ReadAt(ctx context.Context, file string, p []byte, off int64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	size := s.index.Files[0].Size
	if file != singleFile || off < 0 || off > size-int64(len(p)) {
		return fmt.Errorf("reading %q of synthetic:%s: bytes %d to %d are out of range", file, s.name, off, off+int64(len(p)))
	}
	s.bytes.Add(int64(len(p)))
	i := sort.Search(len(s.tensors), func(i int) bool { return s.tensors[i].End > off })
	for len(p) > 0 {
		t := &s.tensors[i]
		n := min(int64(len(p)), t.End-off)
		t.fillBytes(p[:n], off-t.Begin)
		p, off = p[n:], off+n
		i++
	}
	return nil
}

// fillBytes is fill from any byte on: odd ends are cut from whole elements.
func (t *synthTensor) fillBytes(p []byte, off int64) {
	var pair [2]byte
	if off%2 == 1 && len(p) > 0 {
		t.fill(pair[:], off/2)
		p[0] = pair[1]
		p, off = p[1:], off+1
	}
	even := len(p) &^ 1
	t.fill(p[:even], off/2)
	if even < len(p) {
		t.fill(pair[:], (off+int64(even))/2)
		p[even] = pair[0]
	}
}

func (s *Synthetic) Stats() Stats { return Stats{Bytes: s.bytes.Load()} }
func (s *Synthetic) Close() error { return nil }
