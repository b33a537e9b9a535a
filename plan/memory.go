package plan

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Tensors counts what a group of tensors (a layer, or the head's own) puts into memory once it is quantised.
type Tensors struct {
	Weights int64 // elements of linear weights
	Rows    int64 // output rows of those linears, each with a float32 scale
	Vectors int64 // float32 parameters: norms, biases, positions
	Raw     int64 // bytes kept as they are in the file, such as embedding rows
}

// Bytes is the memory for the given number of int8 limbs per weight: 1 for int8, 2 for int8x2.
func (t Tensors) Bytes(limbs int) int64 {
	return t.Weights*int64(limbs) + 4*t.Rows + 4*t.Vectors + t.Raw
}

// Need is what a model asks of the machines that run it.
type Need struct {
	Layers int
	Limbs  int     // int8 limbs per weight: 1 or 2
	Layer  Tensors // one layer; the largest where they differ
	Head   Tensors // embedding and readout, which the head holds unless the last stage reads out

	KVPosition int64 // KV cache bytes of one position of one layer
	Context    int   // positions per session
	Sessions   int
	Scratch    int64 // activations of one stage
	Table      int64 // the embedding on the device of a head that has layers; see HoldsTable
}

// Validate rejects needs no model has.
func (n Need) Validate() error {
	switch {
	case n.Layers <= 0 || n.Layers >= maxLayers:
		return fmt.Errorf("a model of %d layers cannot be planned", n.Layers)
	case n.Limbs != 1 && n.Limbs != 2:
		return fmt.Errorf("%d limbs per weight: want 1 (int8) or 2 (int8x2)", n.Limbs)
	case n.Context <= 0:
		return fmt.Errorf("a context of %d positions cannot be planned", n.Context)
	case n.Sessions <= 0:
		return fmt.Errorf("%d sessions cannot be planned", n.Sessions)
	case n.Layer.Bytes(n.Limbs) <= 0 || n.Head.Bytes(n.Limbs) < 0 || n.KVPosition < 0 || n.Scratch < 0:
		return fmt.Errorf("a layer of %d bytes cannot be planned", n.Layer.Bytes(n.Limbs))
	}
	kv := float64(n.Layers) * float64(n.KVPosition) * float64(n.Context) * float64(n.Sessions)
	if kv+float64(n.Layers)*float64(n.Layer.Bytes(n.Limbs)) > 1<<60 {
		return fmt.Errorf("a KV cache of %.3g bytes cannot be planned", kv)
	}
	return nil
}

// WeightBytes is the quantised weights of a stage of so many layers, and of embedding and readout where it holds these.
func (n Need) WeightBytes(layers int, readout bool) int64 {
	b := int64(layers) * n.Layer.Bytes(n.Limbs)
	if readout {
		b += n.Head.Bytes(n.Limbs)
	}
	return b
}

// KVBytes is the KV cache of a stage of so many layers, for all sessions at full context.
func (n Need) KVBytes(layers int) int64 {
	return int64(layers) * n.KVPosition * int64(n.Context) * int64(n.Sessions)
}

// Total is all a stage of so many layers allocates.
func (n Need) Total(layers int, readout bool) int64 {
	return n.WeightBytes(layers, readout) + n.KVBytes(layers) + n.Scratch
}

// HoldsTable says whether a head's device with so much memory keeps the embedding beside its layers: nobody is refused for it, so
// there must be room for the whole model, whose other stages may be on this device, and for as much again as nobody has counted.
// Memory 0 means not known.
func (n Need) HoldsTable(memory int64) bool {
	return n.Table > 0 && n.Total(n.Layers, true)+2*n.Table <= Usable(memory)
}

// Size fills in the bytes of the stages of a plan from their ranges.
func (n Need) Size(stages []Stage) {
	reads := reader(stages)
	for i := range stages {
		s := &stages[i]
		s.WeightBytes = n.WeightBytes(s.Range.Len(), i == reads)
		s.KVBytes = n.KVBytes(s.Range.Len())
		s.TableBytes = 0
		if s.GPU && s.Head && s.Range.Len() > 0 && n.HoldsTable(s.Memory) {
			s.TableBytes = n.Table
		}
	}
}

// Fit is how many layers fit into a device's memory (free bytes), -1 if not even the readout does where it is held.
// Memory 0 means not known and does not limit.
func (n Need) Fit(memory int64, readout bool) int {
	if memory <= 0 {
		return n.Layers
	}
	room := Usable(memory) - n.Total(0, readout)
	if room < 0 {
		return -1
	}
	perLayer := n.Total(1, false) - n.Total(0, false)
	return int(min(room/perLayer, int64(n.Layers)))
}

// Usable is what a plan may fill of so much free memory: what is left beside the reserve.
func Usable(memory int64) int64 { return max(memory-reserve(memory), 0) }

// reserve is what stays free of so much memory, which may be more than that: a sixteenth, at least 32 MiB, for the runtime, for
// buffers while loading and for estimates that were too small.
func reserve(memory int64) int64 { return max(memory/16, 32<<20) }

// Bytes prints a number of bytes for people: "512 B", "1.50 GiB".
type Bytes int64

func (b Bytes) String() string {
	if b < 0 {
		return "-" + Bytes(-b).String()
	}
	units := []string{"KiB", "MiB", "GiB", "TiB"}
	v, unit := float64(b), "B"
	for _, u := range units {
		if v < 1024 {
			break
		}
		v, unit = v/1024, u
	}
	switch {
	case unit == "B":
		return fmt.Sprintf("%d B", int64(b))
	case v < 10:
		return fmt.Sprintf("%.2f %s", v, unit)
	case v < 100:
		return fmt.Sprintf("%.1f %s", v, unit)
	}
	return fmt.Sprintf("%.0f %s", v, unit)
}

// Plural prints a count for people: "1 layer", "2 layers".
func Plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// byteUnits by lower-case ending. A bare letter is binary, as in most tools that size memory.
var byteUnits = []struct {
	suffix string
	bytes  float64
}{
	{"kib", 1 << 10}, {"mib", 1 << 20}, {"gib", 1 << 30}, {"tib", 1 << 40},
	{"kb", 1e3}, {"mb", 1e6}, {"gb", 1e9}, {"tb", 1e12},
	{"k", 1 << 10}, {"m", 1 << 20}, {"g", 1 << 30}, {"t", 1 << 40},
	{"b", 1}, {"", 1},
}

// ParseBytes reads "8GiB", "8G", "500MB", "1.5 GiB" or a plain number of bytes; the result is above zero.
func ParseBytes(s string) (int64, error) {
	text := strings.ToLower(strings.TrimSpace(s))
	for _, u := range byteUnits {
		digits, ok := strings.CutSuffix(text, u.suffix)
		if !ok {
			continue
		}
		v, err := parsePlain(strings.TrimSpace(digits))
		if err != nil || v <= 0 || v*u.bytes < 1 || v*u.bytes >= 1<<60 {
			break
		}
		return int64(math.Round(v * u.bytes)), nil
	}
	return 0, fmt.Errorf("bad size %q: want a number of bytes or such as 8GiB, 500MB", s)
}

// parsePlain reads a decimal number without sign, exponent, hex or names such as "inf".
func parsePlain(s string) (float64, error) {
	if s == "" || strings.Trim(s, "0123456789.") != "" {
		return 0, strconv.ErrSyntax
	}
	return strconv.ParseFloat(s, 64)
}
