package units

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"dchain/shaders"
	"dchain/units/vk"
)

// limited is a device that believes in narrower limits.
func limited(t *testing.T, o VulkanOptions, narrow func(info *vk.DeviceInfo)) *vulkanDevice {
	t.Helper()
	d := vulkanTest(t, o)
	info := *d.info
	narrow(&info)
	d.info = &info
	return d
}

// TestVulkanManyOutputs has matrices with more outputs than a dispatch has workgroups for.
func TestVulkanManyOutputs(t *testing.T) {
	for _, few := range []int{1, 4} { // rows that linear_rows.comp takes
		d := limited(t, VulkanOptions{}, func(info *vk.DeviceInfo) { info.MaxGroups[0] = 560 })
		d.plain, d.fewRows = false, few
		if _, err := Gate(t.Context(), d, GateShapes{Linears: []LinearShape{{16000, 64, Int8}}}); err != nil {
			t.Error(err)
		}
	}
}

// TestVulkanParts has matrices in several parts, as a device that binds little has them: alone, and after norms with their sums taken.
func TestVulkanParts(t *testing.T) {
	vulkanTiersTest(t, func(t *testing.T, whole *vulkanDevice) {
		d := limited(t, VulkanOptions{Tier: whole.tier}, func(info *vk.DeviceInfo) { info.MaxRange = 128 << 10 })
		if _, err := Gate(t.Context(), d, GateShapes{Linears: []LinearShape{{300, 520, Int8}, {300, 280, Int8x2}}}); err != nil {
			t.Error(err)
		}
		if whole.tier != VulkanLUT { // on which a renderer takes long for them
			vulkanNormed(t, d, 500, Int8x2)
		}
	})
}

// TestVulkanTableParts has a table in several parts, and rows of several dispatches.
func TestVulkanTableParts(t *testing.T) {
	d := limited(t, VulkanOptions{}, func(info *vk.DeviceInfo) { info.MaxRange, info.MaxGroups[0] = 2500, 1 })
	if _, err := Gate(t.Context(), d, GateShapes{Embeds: []int{300, 75}}); err != nil {
		t.Error(err)
	}
	table, err := new(gateSeries).table(d, TableSpec{Rows: 37, Width: 300, Type: TableBF16})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(table.(*vulkanTable).parts); n != 10 {
		t.Errorf("37 rows of 600 bytes lie in %d parts of at most 2500", n)
	}
	if _, err := d.NewTable("wide", TableSpec{Rows: 2, Width: 700, Type: TableF32}); err == nil || !strings.Contains(err.Error(), "2800 bytes") {
		t.Error(err)
	}
}

// TestVulkanRange: what a device cannot bind is an error that says so.
func TestVulkanRange(t *testing.T) {
	const pairs, positions = 8, 5000
	d := limited(t, VulkanOptions{}, func(info *vk.DeviceInfo) { info.MaxRange = 128 << 10 })
	op := Op{Kind: OpRope, Dst: 0, A: None, B: None, Heads: 1, HeadDim: 2 * pairs, RotaryDim: 2 * pairs}
	cos, sin := RopeTables(positions, 2*pairs, 10000)
	var err error
	if op.Cos, err = d.NewVector("cos", cos); err != nil {
		t.Fatal(err)
	}
	if op.Sin, err = d.NewVector("sin", sin); err != nil {
		t.Fatal(err)
	}
	e, err := d.Compile(Program{In: 0, Out: 0, Bufs: []BufSpec{{F32, 2 * pairs}}, Ops: []Op{op}})
	if err != nil {
		t.Fatal(err)
	}
	row := make([]float32, 2*pairs)
	if err := e.Run([]Row{{}}, row, row); err == nil || !strings.Contains(err.Error(), "160000 bytes") || !strings.Contains(err.Error(), "binds at most 131072") {
		t.Error(err)
	}
	// A cache for which there is no place is for another backend to hold, as one for which there is no memory is.
	_, err = d.NewCache(CacheSpec{Layers: 1, Slots: 4, Context: 512, KVHeads: 2, HeadDim: 64})
	if !errors.Is(err, vk.ErrOutOfMemory) || !strings.Contains(err.Error(), "binds at most 131072: use fewer sessions") {
		t.Error(err)
	}
}

// TestVulkanWorkgroups: no workgroup is larger than the device allows, whatever it allows, and none is too small for its row.
func TestVulkanWorkgroups(t *testing.T) {
	for _, most := range []int{256, 384, 512, 768, 896, 1024, 1536} {
		d := &vulkanDevice{info: &vk.DeviceInfo{MaxInvocations: most, Subgroup: 32}}
		r := &recording{dev: d}
		for _, n := range []int{1, 31, 33, 64, 300, 500, 1000, 5000, maxK} {
			for _, per := range []int{1, 4} {
				if threads, items := r.rowThreads(n, per); threads > most || threads*items < n {
					t.Errorf("%d items: %d invocations of %d, with %d each", n, threads, most, items)
				}
			}
			if threads, items := d.rowGroup(n); threads > most || threads*items < n {
				t.Errorf("%d words: %d invocations of %d, with %d each", n, threads, most, items)
			}
		}
	}
}

// TestVulkanRowShared: attend_row.comp is left where its heads and positions exceed the shared memory of a workgroup.
func TestVulkanRowShared(t *testing.T) {
	for _, c := range []struct {
		heads, headDim int
		fits           bool
	}{{14, 64, true}, {32, 128, true}, {8, 256, true}, {16, 512, true}, {80, 512, false}} {
		d := limited(t, VulkanOptions{}, func(info *vk.DeviceInfo) { info.MaxShared, info.MaxInvocations = 32<<10, 512 })
		cache := &vulkanCache{dev: d, spec: CacheSpec{Layers: 1, Slots: 1, Context: shortSpan, KVHeads: 1, HeadDim: c.headDim}}
		op := Op{Kind: OpAttend, Dst: 0, A: 0, B: None, Heads: c.heads, KVHeads: 1, HeadDim: c.headDim}
		e := &vulkanExecutable{dev: d, scratch: scratchPool{}, prog: Program{Bufs: []BufSpec{{F32, c.heads * c.headDim}}, Ops: []Op{op}, Cache: cache}}
		r := e.newRecording(batchShape{1, shortSpan})
		if a := r.newAttention(0); r.err != nil || a.isShort != c.fits {
			t.Errorf("%d heads of %d take %d bytes: in one dispatch %v (%v)", c.heads, c.headDim, a.rowShared(r), a.isShort, r.err)
		}
		r.free()
	}
}

// TestVulkanManyRows has more rows than buffers have room for: no buffer is larger than what the device allows.
func TestVulkanManyRows(t *testing.T) {
	const width, rows = 100, 250
	d := limited(t, VulkanOptions{}, func(info *vk.DeviceInfo) { info.MaxRange = 40_000 })
	x, err := d.Compile(Program{In: 0, Out: 0, Bufs: []BufSpec{{F32, width}}, Ops: []Op{{Kind: OpScale, Dst: 0, A: 0, B: None, Scale: 3}}})
	if err != nil {
		t.Fatal(err)
	}
	s := gateSeries(3)
	in, out := s.values(rows*width, 1), make([]float32, rows*width)
	if err := x.Run(make([]Row, rows), in, out); err != nil {
		t.Fatal(err)
	}
	for i, v := range out {
		if v != flush(3*in[i]) {
			t.Fatalf("value %d is %v, want %v", i, v, 3*in[i])
		}
	}
	e := x.(*vulkanExecutable)
	for what, b := range map[string]*vk.Buffer{"rows": e.bufs[0], "step": e.step, "up": e.lanes[0].up, "down": e.lanes[0].down} {
		if b.Size() > d.info.MaxRange {
			t.Errorf("%s of %d rows take %d bytes", what, e.capacity, b.Size())
		}
	}
}

// TestVulkanRefuses: a device without what every shader needs is refused by what it lacks.
func TestVulkanRefuses(t *testing.T) {
	for want, narrow := range map[string]func(info *vk.DeviceInfo){
		"reductions":       func(info *vk.DeviceInfo) { info.SubgroupArithmetic = false },
		"subgroups of 2":   func(info *vk.DeviceInfo) { info.Subgroup = 2 },
		"128 invocations":  func(info *vk.DeviceInfo) { info.MaxInvocations = 128 },
		"with 16384 bytes": func(info *vk.DeviceInfo) { info.MaxShared = 16 << 10 },
		"tier \"dp4a\"":    func(info *vk.DeviceInfo) { info.DotProduct = false },
	} {
		if err := limited(t, VulkanOptions{Tier: VulkanDP4A}, narrow).start(); !errors.Is(err, vk.ErrUnavailable) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// looksAtSubgroups says that a shader has one of the built-ins SubgroupSize, NumSubgroups, SubgroupId and SubgroupLocalInvocationId.
func looksAtSubgroups(t *testing.T, name string) bool {
	t.Helper()
	const decorate, builtIn, header = 71, 11, 5
	code, err := shaders.Code(name)
	if err != nil {
		t.Fatal(err)
	}
	word := func(i int) uint32 { return binary.LittleEndian.Uint32(code[4*i:]) }
	for i := header; i < len(code)/4; i += int(word(i) >> 16) {
		if word(i)&0xffff == decorate && word(i+2) == builtIn {
			switch word(i + 3) {
			case 36, 38, 40, 41:
				return true
			}
		}
	}
	return false
}

// TestVulkanRequiredSubgroups: no shader that looks at its subgroups leaves their size to the driver.
func TestVulkanRequiredSubgroups(t *testing.T) {
	const context = 4096
	s := layerShapes[0]
	seen := map[string]bool{}
	for _, matrices := range []bool{false, true} {
		d := vulkanTest(t, VulkanOptions{})
		if matrices {
			d.tiled, attendTiled = true, true
			defer func() { attendTiled = false }()
			d.useMatrices()
		}
		x, err := d.Compile(layersProgram(t, d, s, 1, context))
		if err == nil {
			err = x.(*vulkanExecutable).reserve(200)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, shape := range []batchShape{{1, 64}, {1, context}, {3, 64}, {20, 64}, {20, context}, {200, context}} {
			r := x.(*vulkanExecutable).newRecording(shape)
			r.compile = func(s shader, _, _ int) {
				if seen[s.name] = looksAtSubgroups(t, s.name); seen[s.name] && s.subgroup != d.info.Subgroup {
					t.Errorf("%d rows of a context of %d: %s requires subgroups of %d", shape.rows, shape.context, s.name, s.subgroup)
				}
			}
			if r.ops(); r.err != nil {
				t.Fatal(r.err)
			}
			r.free()
		}
	}
	for _, name := range []string{"attend_row_dp4a", "attend_short_dp4a", "heads", "linear_row_dp4a", "linear_matrix_tiled", "attend_values_tiled"} {
		if !seen[name] {
			t.Errorf("%s is not among the shaders that look at their subgroups: %v", name, seen)
		}
	}
}
