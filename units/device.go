// Package units runs the operations of a transformer layer on verified INT8 units.
//
// A unit is an int8 x int8 product summed in int32; integer sums do not depend on order, and everything between the
// products is element-wise float32 built from correctly rounded operations and committed tables. NUMERICS.md in this
// folder is the normative description; every device gives exactly its bits.
//
// Operations are data: a stage compiles its layers into a Program once, and a Device executes the list. The CPU
// device interprets it and is the reference; other devices record it.
package units

import "fmt"

// NumericsVersion names the arithmetic of NUMERICS.md. It is part of the model fingerprint.
const NumericsVersion = 1

// WeightMode is the storage format of linear weights.
type WeightMode uint8

const (
	Int8   WeightMode = iota // one int8 limb per weight
	Int8x2                   // two int8 limbs per weight, about 16 bits
)

// Limbs returns the number of int8 limbs, which is also the number of bytes per weight.
func (m WeightMode) Limbs() int { return int(m) + 1 }

func (m WeightMode) String() string {
	if m == Int8x2 {
		return "int8x2"
	}
	return "int8"
}

// ParseWeightMode accepts "int8" and "int8x2".
func ParseWeightMode(s string) (WeightMode, error) {
	switch s {
	case "int8":
		return Int8, nil
	case "int8x2":
		return Int8x2, nil
	}
	return 0, fmt.Errorf("unknown weight format %q (int8 or int8x2)", s)
}

// Device executes programs. Its methods are safe for concurrent use unless stated.
type Device interface {
	// Name is a short human description, e.g. "cpu (generic, 2 threads)".
	Name() string
	// NewLinear reserves an n x k matrix (n output rows) in the device's own layout.
	NewLinear(name string, n, k int, mode WeightMode) (Linear, error)
	// NewVector stores parameters (norm weights, biases, rotary tables), flushed by NUMERICS.md section 1.
	// A value that is not finite is an error naming the vector.
	NewVector(name string, v []float32) (Vector, error)
	// NewTable reserves a table of rows that OpEmbed looks up.
	NewTable(name string, spec TableSpec) (Table, error)
	// NewCache reserves the KV cache for all layers, slots and positions at once.
	NewCache(spec CacheSpec) (Cache, error)
	// Compile checks the program (shapes, buffers, handles of this device) and prepares it.
	Compile(p Program) (Executable, error)
	// Close releases the device and what it made, of which nothing may be used afterwards.
	Close() error
}

// Linear is a weight matrix on a device: quantised row by row while it is loaded.
type Linear interface {
	Shape() (n, k int)
	// PutRows quantises consecutive output rows starting at first; rows holds len(rows)/k of them. Calls for
	// disjoint rows may run concurrently. A value that is not finite is an error naming the matrix and row.
	PutRows(first int, rows []float32) error
	// Finish seals the matrix: every row must have been put.
	Finish() error
	// Bytes is the device memory it holds.
	Bytes() int64
	// Close gives that memory back. No program that uses the matrix may run afterwards.
	Close() error
}

// Vector is a read-only float32 parameter on a device.
type Vector interface {
	Len() int
	// Close gives its memory back. No program that uses the parameter may run afterwards.
	Close() error
}

// TableType is how the values of a table are stored, little-endian.
type TableType uint8

const (
	TableBF16 TableType = iota
	TableF16
	TableF32
)

// Bytes is what a value takes.
func (t TableType) Bytes() int {
	if t == TableF32 {
		return 4
	}
	return 2
}

func (t TableType) String() string {
	switch t {
	case TableBF16:
		return "bf16"
	case TableF16:
		return "f16"
	case TableF32:
		return "f32"
	}
	return fmt.Sprintf("type(%d)", uint8(t))
}

// TableSpec sizes a table.
type TableSpec struct {
	Rows, Width int
	Type        TableType
}

// Table is a read-only table of rows on a device, kept as they are stored.
type Table interface {
	Spec() TableSpec
	// PutRows takes consecutive rows starting at first, as bytes of the type. Calls for disjoint rows may run concurrently.
	PutRows(first int, rows []byte) error
	// Finish seals the table: every row must have been put.
	Finish() error
	// Bytes is the device memory it holds.
	Bytes() int64
	// Close gives that memory back. No program that uses the table may run afterwards.
	Close() error
}

// CacheSpec sizes a KV cache: Slots independent sessions of up to Context positions for each layer.
type CacheSpec struct {
	Layers  int
	Slots   int
	Context int
	KVHeads int
	HeadDim int
}

// Bytes is what a cache of this size takes: two limbs for K and V, and an exponent per head.
func (s CacheSpec) Bytes() int64 {
	perPosition := int64(s.KVHeads) * (4*int64(s.HeadDim) + 4)
	return int64(s.Layers) * int64(s.Slots) * int64(s.Context) * perPosition
}

// Cache is a KV cache on a device. A slot needs no clearing: positions are overwritten before they become visible.
type Cache interface {
	Spec() CacheSpec
	Close() error
}

// Buf names an activation buffer of a program: one row of Width values per row of the batch.
type Buf int

// BufKind says what a buffer holds.
type BufKind uint8

const (
	F32   BufKind = iota // float32 values
	Limbs                // a quantised row: limbs, exponent, wide flag (NUMERICS.md section 2)
)

// BufSpec declares a buffer.
type BufSpec struct {
	Kind  BufKind
	Width int
}

// OpKind is the closed set of operations. A new kernel is a new value here, never a new method.
type OpKind uint8

const (
	OpNorm     OpKind = iota // Dst = norm(A) * Weight (+ Bias), over Groups equal parts of the row
	OpQuantize               // Dst (Limbs) = quantise(A)
	OpLinear                 // Dst = Linear x A (Limbs) + Bias
	OpRope                   // rotate Dst in place: Heads x HeadDim, first RotaryDim of each, tables Cos, Sin
	OpStoreKV                // cache layer Layer at each row's position: K = A, V = B
	OpAttend                 // Dst = attention of queries A over cache layer Layer
	OpAct                    // Dst = act(A), or act(A) * B when gated (B >= 0)
	OpAdd                    // Dst = A + B
	OpScale                  // Dst = A * Scale
	OpSoftcap                // Dst = softcap(A, Cap)
	OpRoute                  // Dst = the TopK experts of router logits A: their indices, ascending, then their weights
	OpExperts                // Dst = weighted sum of the Experts, with act Act, that the route B selects for the rows A (Limbs)
	OpTop                    // Dst = the TopK largest values of A: their indices, largest first, then the values
	OpEmbed                  // Dst = the row of Table that the first value of A is the index of; times Scale, unless that is 0
)

var opNames = [...]string{"norm", "quantize", "linear", "rope", "store-kv", "attend", "act", "add", "scale", "softcap", "route", "experts", "top", "embed"}

func (k OpKind) String() string {
	if int(k) < len(opNames) {
		return opNames[k]
	}
	return fmt.Sprintf("op(%d)", k)
}

// NormKind and ActKind select the variant of OpNorm and OpAct.
type NormKind uint8

const (
	RMSNorm NormKind = iota
	LayerNorm
)

type ActKind uint8

const (
	SiLU ActKind = iota
	GELUTanh
	GELU // exact: x * Phi(x)
	ReLU
)

// None marks an unused Buf.
const None Buf = -1

// Op is one operation. Fields that a kind does not mention are zero (None for buffers).
type Op struct {
	Kind OpKind
	Dst  Buf
	A, B Buf
	// Layer is the model layer the op belongs to (for errors and audits); for cache ops CacheLayer indexes the cache.
	Layer      int
	CacheLayer int

	Linear Linear
	Weight Vector // norm weight
	Bias   Vector // norm or linear bias, may be nil

	Norm   NormKind
	Eps    float32
	Groups int // norm: parts of the row normalised separately (1 = the row)

	Act ActKind

	Heads, KVHeads, HeadDim int
	RotaryDim               int
	// Interleaved rotary pairs (x[2i], x[2i+1]); otherwise halves (x[i], x[i+rot/2]).
	Interleaved bool
	Cos, Sin    Vector  // [positions][RotaryDim/2]
	Scale       float32 // attend: score multiplier; scale, embed: factor
	Window      int     // attend: visible positions including the row's own; 0 = all
	Cap         float32 // attend, softcap: soft cap of scores or values; 0 = none
	Slopes      Vector  // attend: ALiBi slope of each head; nil = none

	TopK      int  // route, experts, top
	Normalise bool // route: weights sum to 1 over the selected experts
	Experts   []Expert

	Table Table // embed
}

// Expert is one feed-forward network of a mixture: Down x (act(Gate x A) * (Up x A)).
type Expert struct {
	Gate, Up, Down Linear
}

// Program is a list of operations over declared buffers. In is filled before the run, Out read after it.
type Program struct {
	Bufs    []BufSpec
	Ops     []Op
	In, Out Buf
	Cache   Cache // nil when the program has no cache ops
}

// Row is one position of one session in a batch.
type Row struct {
	Slot int // cache slot
	Pos  int // absolute position
}

// Executable is a compiled program. Run may be called from one goroutine at a time.
type Executable interface {
	// Run executes the program for a batch. in holds len(rows) rows of the In width; out receives len(rows) rows of
	// the Out width, or the last alone if it has room for one; the others are not looked at then. Rows of one slot must be consecutive positions in ascending order. After an *AuditError every Run of
	// the device fails with it.
	Run(rows []Row, in, out []float32) error
	// Close gives back what the program holds besides its handles. It must not be running.
	Close() error
}
