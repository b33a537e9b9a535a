package plan

import "testing"

func TestTensorsBytes(t *testing.T) {
	layer := Tensors{Weights: 1000, Rows: 10, Vectors: 4, Raw: 3}
	if got := layer.Bytes(1); got != 1000+40+16+3 {
		t.Errorf("int8: %d bytes", got)
	}
	if got := layer.Bytes(2); got != 2000+40+16+3 {
		t.Errorf("int8x2: %d bytes", got)
	}
}

// TestNeedQwen counts a model of 0.5 G parameters by hand: 24 layers, hidden 896, 2 KV heads of 64, inter 4864.
func TestNeedQwen(t *testing.T) {
	const hidden, inter, kv, vocab = 896, 4864, 128, 151936
	need := Need{
		Layers: 24, Limbs: 1,
		Layer: Tensors{
			Weights: 2*hidden*hidden + 2*hidden*kv + 3*hidden*inter,
			Rows:    hidden + 2*kv + hidden + 2*inter + hidden,
			Vectors: 2*hidden + hidden + 2*kv,
		},
		Head:       Tensors{Weights: vocab * hidden, Rows: vocab, Vectors: hidden, Raw: 2 * vocab * hidden},
		KVPosition: 2 * (4*64 + 4), Context: 4096, Sessions: 2, Scratch: 1 << 20,
	}
	if err := need.Validate(); err != nil {
		t.Fatal(err)
	}
	const layer = 14909440 + 4*12672 + 4*2944
	if got := need.WeightBytes(1, false); got != layer {
		t.Errorf("a layer takes %d bytes, want %d", got, layer)
	}
	if got := need.WeightBytes(2, true) - need.WeightBytes(0, true); got != 2*layer {
		t.Errorf("two layers take %d bytes, want %d", got, 2*layer)
	}
	if got, want := need.KVBytes(24), int64(24*520*4096*2); got != want {
		t.Errorf("the KV cache takes %d bytes, want %d", got, want)
	}
	if got := need.Total(0, false); got != 1<<20 {
		t.Errorf("a stage without layers takes %d bytes, want the scratch", got)
	}
	if got, want := need.Total(24, true), need.WeightBytes(24, true)+need.KVBytes(24)+1<<20; got != want {
		t.Errorf("total %d, want %d", got, want)
	}
}

// TestHoldsTable: the table is held where it leaves as much again free, and where there is one.
func TestHoldsTable(t *testing.T) {
	need := mib(10)
	const memory = 1 << 30
	need.Table = (Usable(memory) - need.Total(need.Layers, true)) / 2
	if !need.HoldsTable(memory) || need.HoldsTable(memory-1<<10) || need.HoldsTable(0) {
		t.Errorf("a table of %d bytes: %v in %d bytes, %v in fewer, %v where it is not known", need.Table, need.HoldsTable(memory), memory,
			need.HoldsTable(memory-1<<10), need.HoldsTable(0))
	}
	if need.Table = 0; need.HoldsTable(memory) {
		t.Error("a table that is not there is held")
	}
}

// TestSizeTable: a plan shows the table of the head's GPU, if it has layers and room, and of nothing else.
func TestSizeTable(t *testing.T) {
	need := mib(10)
	need.Table = 3 << 20
	whole, half := Range{0, 9}, Range{0, 4}
	for _, c := range []struct {
		name  string
		stage Stage
		want  int64
	}{
		{"a GPU", Stage{Head: true, GPU: true, Range: whole, Memory: 1 << 30}, 3 << 20},
		{"a processor", Stage{Head: true, Range: whole, Memory: 1 << 30}, 0},
		{"a GPU of half the layers", Stage{Head: true, GPU: true, Range: half, Memory: 1 << 30}, 3 << 20},
		{"a GPU without layers", Stage{Head: true, GPU: true, Range: None, Memory: 1 << 30}, 0},
		{"a GPU of a stage", Stage{GPU: true, Range: half, Memory: 1 << 30}, 0},
		{"a GPU without the room", Stage{Head: true, GPU: true, Range: whole, Memory: need.Total(10, true)}, 0},
	} {
		stages := []Stage{c.stage}
		stages[0].TableBytes = 1 // of an earlier plan
		need.Size(stages)
		if got := stages[0].TableBytes; got != c.want {
			t.Errorf("%s: %d bytes, want %d", c.name, got, c.want)
		}
	}
}

// What Fit says fits does, and one layer more does not.
func TestFit(t *testing.T) {
	need := mib(1000)
	need.Scratch = 5 << 20
	for _, head := range []bool{false, true} {
		for memory := int64(1 << 20); memory < 2<<30; memory += 7654321 {
			n := need.Fit(memory, head)
			if n >= 0 && need.Total(n, head) > Usable(memory) {
				t.Fatalf("head %v: %d layers are said to fit into %d bytes", head, n, memory)
			}
			if n < need.Layers && need.Total(n+1, head) <= Usable(memory) {
				t.Fatalf("head %v: %d layers are said not to fit into %d bytes", head, n+1, memory)
			}
		}
	}
	if got := need.Fit(0, true); got != 1000 {
		t.Errorf("unknown memory holds %d layers", got)
	}
	if got := need.Fit(1<<50, true); got != 1000 {
		t.Errorf("a petabyte holds %d layers", got)
	}
	if Usable(1) != 0 || Usable(32<<20) != 0 || Usable(16<<30) != 15<<30 {
		t.Errorf("usable: %d, %d, %d", Usable(1), Usable(32<<20), Usable(16<<30))
	}
}

func TestBytes(t *testing.T) {
	for _, c := range []struct {
		b    Bytes
		want string
	}{
		{0, "0 B"}, {1023, "1023 B"}, {1024, "1.00 KiB"}, {1536, "1.50 KiB"}, {10 << 20, "10.0 MiB"},
		{100 << 20, "100 MiB"}, {3 << 30, "3.00 GiB"}, {5000 << 40, "5000 TiB"}, {-2048, "-2.00 KiB"},
	} {
		if got := c.b.String(); got != c.want {
			t.Errorf("%d bytes print as %q, want %q", int64(c.b), got, c.want)
		}
	}
}

func TestParseBytes(t *testing.T) {
	for _, c := range []struct {
		in   string
		want int64
	}{
		{"1", 1}, {"512b", 512}, {"8GiB", 8 << 30}, {"8G", 8 << 30}, {"8g", 8 << 30}, {"8GB", 8e9}, {"1.5 GiB", 3 << 29},
		{"500mb", 500e6}, {"2k", 2048}, {" 1TiB ", 1 << 40}, {"3kb", 3000},
	} {
		if got, err := ParseBytes(c.in); err != nil || got != c.want {
			t.Errorf("ParseBytes(%q) = %d, %v; want %d", c.in, got, err, c.want)
		}
	}
	for _, in := range []string{"", "GiB", "-1", "0", "0.1", "1e3", "8 GiB x", "8XB", "9999999999T", "inf", "nan", "0x10", "1.2.3", "."} {
		if got, err := ParseBytes(in); err == nil {
			t.Errorf("ParseBytes(%q) = %d; want an error", in, got)
		}
	}
}
