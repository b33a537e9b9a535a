//go:build linux && (amd64 || arm64) && cgo && !novulkan

package vk

import (
	"bytes"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	vulkan "github.com/vulkan-go/vulkan"
)

//go:embed testdata/scale.spv
var scaleShader []byte

// openAny opens the first device, for tests that any device passes.
func openAny(t testing.TB, o Options) *Device {
	t.Helper()
	d, err := Open(o)
	if !Built || errors.Is(err, ErrUnavailable) && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func newBuffer(t testing.TB, d *Device, bytes int64, kind Kind) *Buffer {
	t.Helper()
	b, err := d.NewBuffer(bytes, kind)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Free)
	return b
}

func floats(v ...float32) []byte {
	var b []byte
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

func scalePipeline(t *testing.T, d *Device, bias float32) *Pipeline {
	t.Helper()
	p, err := d.NewPipeline(PipelineSpec{Name: "scale", Code: scaleShader, Bindings: 2, PushBytes: 8,
		Constants: []uint32{64, math.Float32bits(bias)}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func push(n uint32, factor float32) []byte {
	return append(binary.LittleEndian.AppendUint32(nil, n), floats(factor)...)
}

func TestList(t *testing.T) {
	openAny(t, Options{})
	devices, err := List()
	if err != nil {
		t.Fatal(err)
	}
	for i, d := range devices {
		if d.Index != i || d.Name == "" || d.MaxRange < 1<<27 || d.MaxAllocation < 1<<28 || d.MaxPush < 128 || d.Subgroup < 1 || d.Memory < 1<<20 {
			t.Errorf("device %d: %+v", i, d)
		}
		if d.MaxRange > d.MaxAllocation || d.MaxRange%4 != 0 {
			t.Errorf("device %d binds %d bytes, a buffer has up to %d", i, d.MaxRange, d.MaxAllocation)
		}
		left, known := FreeMemory(i)
		if known && (left < 0 || left > d.Memory) {
			t.Errorf("device %d: %d bytes are left of %d", i, left, d.Memory)
		}
		t.Logf("%+v, %d bytes left (known: %v)", d, left, known)
	}
	if _, known := FreeMemory(len(devices)); known {
		t.Error("memory of a device beyond the last")
	}
	if _, err := Open(Options{Device: len(devices)}); err == nil {
		t.Error("opened a device beyond the last")
	}
}

// TestRun runs a recorded list several times over other inputs: upload, copy, two dispatches, copy, readback.
func TestRun(t *testing.T) {
	d := openAny(t, Options{})
	p := scalePipeline(t, d, 0.5)
	const n = 1000
	up, down := newBuffer(t, d, 4*n, Upload), newBuffer(t, d, 4*n, Readback)
	a, b := newBuffer(t, d, 4*n, Local), newBuffer(t, d, 4*n, Local)
	c := d.NewCommands()
	defer c.Free()
	groups := (n + 63) / 64
	c.Timestamp()
	c.Copy(a, 0, up, 0, 4*n)
	c.CopyBarrier()
	c.Dispatch(p, push(n, 3), groups, 1, 1, Binding{Buffer: a}, Binding{Buffer: b})
	c.Barrier()
	c.Dispatch(p, push(n, -1), groups, 1, 1, Binding{Buffer: b}, Binding{Buffer: a})
	c.CopyBarrier()
	c.Copy(down, 0, a, 0, 4*n)
	c.CopyBarrier()
	c.Timestamp()
	if err := c.End(); err != nil {
		t.Fatal(err)
	}
	for run := range 3 {
		for i := range n {
			copy(up.Bytes()[4*i:], floats(float32(i*run)))
		}
		if err := d.Run(c); err != nil {
			t.Fatal(err)
		}
		for i := range n {
			got := math.Float32frombits(binary.LittleEndian.Uint32(down.Bytes()[4*i:]))
			if want := -(float32(i*run)*3 + 0.5) + 0.5; got != want {
				t.Fatalf("run %d, value %d: %v, want %v", run, i, got, want)
			}
		}
	}
	times, err := c.Times()
	if err != nil || (d.Info().TimestampNanos > 0 && (len(times) != 1 || times[0] < 0)) {
		t.Errorf("times %v, %v", times, err)
	}
}

// TestSubmit has two lists under way, of which the second begins with what the first leaves, and awaits them in either order.
func TestSubmit(t *testing.T) {
	d := openAny(t, Options{})
	p := scalePipeline(t, d, 0.5)
	const n = 1000
	up, a := newBuffer(t, d, 4*n, Upload), newBuffer(t, d, 4*n, Local)
	var lists [2]*Commands
	var down [2]*Buffer
	for i := range lists {
		down[i] = newBuffer(t, d, 4*n, Readback)
		c := d.NewCommands()
		defer c.Free()
		if i == 0 {
			c.Copy(a, 0, up, 0, 4*n)
			c.CopyBarrier()
		}
		c.Dispatch(p, push(n, 3), (n+63)/64, 1, 1, Binding{Buffer: a}, Binding{Buffer: a})
		c.CopyBarrier()
		c.Copy(down[i], 0, a, 0, 4*n)
		c.CopyBarrier()
		if err := c.End(); err != nil {
			t.Fatal(err)
		}
		lists[i] = c
	}
	for run := range 4 {
		for i := range n {
			copy(up.Bytes()[4*i:], floats(float32(i*run)))
		}
		var pending [2]*Pending
		for i, c := range lists {
			var err error
			if pending[i], err = d.Submit(c); err != nil {
				t.Fatal(err)
			}
		}
		for i := range pending {
			if err := pending[(i+run)%2].Wait(); err != nil {
				t.Fatal(err)
			}
		}
		for i := range n {
			want := float32(i * run)
			for k := range down {
				want = want*3 + 0.5
				if got := math.Float32frombits(binary.LittleEndian.Uint32(down[k].Bytes()[4*i:])); got != want {
					t.Fatalf("run %d, list %d, value %d: %v, want %v", run, k, i, got, want)
				}
			}
		}
	}
}

// TestPipelineCache writes the cache at Close and reads it again.
func TestPipelineCache(t *testing.T) {
	openAny(t, Options{})
	dir := t.TempDir()
	for range 2 {
		d, err := Open(Options{CacheDir: dir})
		if err != nil {
			t.Fatal(err)
		}
		scalePipeline(t, d, 1)
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		if s, err := os.Stat(d.cachePath()); err != nil || s.Size() == 0 {
			t.Fatalf("%v, %v", s, err)
		}
	}
}

// TestPipelineCacheFolder: a folder that does not do is spoken of, and the device works without.
func TestPipelineCacheFolder(t *testing.T) {
	openAny(t, Options{})
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	var notes []string
	d, err := Open(Options{CacheDir: file, Note: func(text string) { notes = append(notes, text) }})
	if err != nil {
		t.Fatal(err)
	}
	if err := scaleOnce(d, 1, 2); err != nil {
		t.Error(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if len(notes) != 2 || !strings.Contains(notes[0], "are not used") || !strings.Contains(notes[1], "are not kept") {
		t.Errorf("said %q", notes)
	}
}

// TestUsable: a device that is refused does not stand in the way of those beside it.
func TestUsable(t *testing.T) {
	defer func(old []error) { refused = old }(refused)
	old := errors.New("the first is too old")
	query := func(i int, p *physical) error {
		if i%2 == 0 {
			return old
		}
		p.info.Name = fmt.Sprint(i)
		return nil
	}
	devices, err := usable(4, query)
	if err != nil || len(devices) != 2 || devices[0].info.Name != "1" || devices[1].info.Name != "3" || devices[1].info.Index != 1 || len(refused) != 2 {
		t.Errorf("%d devices, %v refused, %v", len(devices), refused, err)
	}
	if _, err := usable(1, query); !errors.Is(err, old) {
		t.Errorf("no device: %v", err)
	}
}

// TestLimits: what a shader needs and the device does not have is named before the driver is asked.
// Where the binding has no memory for the copy of an argument the call fails; any other panic is one.
func TestCallWithoutMemory(t *testing.T) {
	if r := call(func() vulkan.Result { return vulkan.Incomplete }); r != int(vulkan.Incomplete) {
		t.Errorf("a result of %d came back as %d", vulkan.Incomplete, r)
	}
	if r := fill(func() {}); r != 0 {
		t.Errorf("without a result: %d", r)
	}
	err := check("vkCreateInstance", fill(func() { panic(noMemory + "cannot allocate memory") }))
	if !errors.Is(err, ErrOutOfMemory) || err.Error() != "vkCreateInstance: out of host memory" {
		t.Errorf("without memory: %v", err)
	}
	defer func() {
		if p := recover(); p != "a bug" {
			t.Errorf("a bug became %v", p)
		}
	}()
	fill(func() { panic("a bug") })
}

func TestLimits(t *testing.T) {
	d := openAny(t, Options{})
	for want, spec := range map[string]PipelineSpec{
		"storage buffers": {Bindings: d.Info().MaxBindings + 1}, "push constants": {PushBytes: d.Info().MaxPush + 1},
		"subgroups": {Subgroup: d.Info().MaxSubgroup + 1},
	} {
		spec.Code = scaleShader
		if _, err := d.NewPipeline(spec); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", spec, err)
		}
	}
}

// TestHang: what a device that does not answer may yet use is left alone.
func TestHang(t *testing.T) {
	openAny(t, Options{})
	lost := 0
	d, err := Open(Options{Lost: func() { lost++ }})
	if err != nil {
		t.Fatal(err)
	}
	b, err := d.NewBuffer(4, Local)
	if err != nil {
		t.Fatal(err)
	}
	for _, results := range [][]int{{resultTimeout}, {resultOutOfHostMemory}, {resultTimeout, resultDeviceLost}, {resultDeviceLost, resultOutOfDeviceMemory}} {
		d.hangs.Store(false)
		for _, r := range results {
			d.giveUp(r)
		}
		if !d.hangs.Load() {
			t.Errorf("after waits with the results %v nothing is running any more", results)
		}
	}
	c := d.NewCommands()
	if err := d.Run(c); !errors.Is(err, ErrDeviceLost) {
		t.Errorf("run: %v", err)
	}
	if err := (&Pending{dev: d}).Wait(); !errors.Is(err, ErrDeviceLost) {
		t.Errorf("waiting for what was submitted before: %v", err)
	}
	b.Free()
	c.Free()
	if err := d.Close(); !errors.Is(err, ErrDeviceLost) || b.handle == nil {
		t.Errorf("close: %v", err)
	}
	d.hangs.Store(false)
	if d.giveUp(resultDeviceLost); d.hangs.Load() {
		t.Error("commands of a device that is lost are running still")
	}
	if d.check("vkCreateBuffer", resultDeviceLost); lost != 1 {
		t.Errorf("one device is lost %d times", lost)
	}
	b.Free()
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// TestSpareBuffers: a list is recorded in what one that was freed leaves, if that is as many buffers, and so many are not kept that
// nobody needs them.
func TestSpareBuffers(t *testing.T) {
	d := openAny(t, Options{})
	scale := scalePipeline(t, d, 0.5)
	in, out := newBuffer(t, d, 4, Upload), newBuffer(t, d, 4, Readback)
	list := func(factor float32, cuts int) *Commands {
		t.Helper()
		c := d.NewCommands()
		c.Dispatch(scale, push(1, factor), 1, 1, 1, Binding{Buffer: in}, Binding{Buffer: out})
		c.CopyBarrier()
		for range cuts {
			c.Cut()
		}
		if err := c.End(); err != nil {
			t.Fatal(err)
		}
		return c
	}
	copy(in.Bytes(), floats(2))
	run := func(c *Commands, want float32) {
		t.Helper()
		if err := d.Run(c); err != nil {
			t.Fatal(err)
		}
		if got := math.Float32frombits(binary.LittleEndian.Uint32(out.Bytes())); got != want {
			t.Errorf("%v, want %v", got, want)
		}
	}
	c := list(3, 0)
	run(c, 6.5)
	pool := c.pool
	c.Free()
	for _, factor := range []float32{4, 5} {
		cut, again := list(7, 1), list(factor, 0)
		if again.pool != pool || cut.pool == pool {
			t.Error("a list is made anew, or another uses what one buffer was kept for")
		}
		run(again, 2*factor+0.5)
		run(cut, 14.5)
		cut.Free()
		again.Free()
	}
	var many []*Commands
	for range spareBuffers + 2 {
		many = append(many, list(3, 0))
	}
	for _, c := range many {
		run(c, 6.5)
		c.Free()
	}
	if n := len(d.spare); n != spareBuffers {
		t.Errorf("%d are kept, want %d", n, spareBuffers)
	}
}

// TestCollector records, specialises and runs while the garbage collector does too, from several goroutines: what the
// driver reads must be memory that stays.
func TestCollector(t *testing.T) {
	d := openAny(t, Options{})
	stop := make(chan struct{})
	var gc sync.WaitGroup
	gc.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				runtime.GC()
			}
		}
	})
	var work sync.WaitGroup
	for w := range 3 {
		work.Go(func() {
			for i := range 40 {
				if err := scaleOnce(d, float32(w), float32(i)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	work.Wait()
	close(stop)
	gc.Wait()
}

// TestSubmitAround runs a list of three parts with copies before and after each of them in turn, and of its input ahead of all.
func TestSubmitAround(t *testing.T) {
	d := openAny(t, Options{})
	p := scalePipeline(t, d, 0.5)
	in, local, seen := newBuffer(t, d, 4, Upload), newBuffer(t, d, 4, Local), newBuffer(t, d, 8, Readback)
	c := d.NewCommands()
	defer c.Free()
	c.Copy(local, 0, in, 0, 4)
	c.CopyBarrier()
	for range 2 {
		c.Cut()
		c.Dispatch(p, push(1, 3), 1, 1, 1, Binding{Buffer: local}, Binding{Buffer: local})
		c.CopyBarrier()
	}
	if err := c.End(); err != nil {
		t.Fatal(err)
	}
	var looks [2]*Commands
	for i := range looks {
		looks[i] = d.NewCommands()
		defer looks[i].Free()
		looks[i].Copy(seen, 4*int64(i), local, 0, 4)
		looks[i].CopyBarrier()
		if err := looks[i].End(); err != nil {
			t.Fatal(err)
		}
	}
	given, first := newBuffer(t, d, 4, Upload), d.NewCommands()
	defer first.Free()
	first.Copy(in, 0, given, 0, 4)
	first.CopyBarrier()
	if err := first.End(); err != nil {
		t.Fatal(err)
	}
	values := []float32{2, 6.5, 20} // after each part
	for part := 1; part < 3; part++ {
		copy(in.Bytes(), floats(99))
		copy(given.Bytes(), floats(values[0]))
		p, err := d.SubmitAround(c, part, looks[0], looks[1], first)
		if err == nil {
			err = p.Wait()
		}
		if err != nil {
			t.Fatal(err)
		}
		if want := floats(values[part-1], values[part]); !bytes.Equal(seen.Bytes(), want) {
			t.Errorf("around part %d: %x, want %x", part, seen.Bytes(), want)
		}
	}
	if err := d.Run(c); err != nil {
		t.Fatal(err)
	}
}

// scaleOnce makes everything anew for one product.
func scaleOnce(d *Device, bias, x float32) error {
	p, err := d.NewPipeline(PipelineSpec{Name: "scale", Code: scaleShader, Bindings: 2, PushBytes: 8, Constants: []uint32{8, math.Float32bits(bias)}})
	if err != nil {
		return err
	}
	a, err := d.NewBuffer(4, Upload)
	if err != nil {
		return err
	}
	defer a.Free()
	b, err := d.NewBuffer(4, Readback)
	if err != nil {
		return err
	}
	defer b.Free()
	c := d.NewCommands()
	defer c.Free()
	c.Dispatch(p, push(1, 2), 1, 1, 1, Binding{Buffer: a}, Binding{Buffer: b})
	c.CopyBarrier()
	if err := c.End(); err != nil {
		return err
	}
	copy(a.Bytes(), floats(x))
	if err := d.Run(c); err != nil {
		return err
	}
	if got := math.Float32frombits(binary.LittleEndian.Uint32(b.Bytes())); got != 2*x+bias {
		return errors.New("wrong product")
	}
	return nil
}

func TestModes(t *testing.T) {
	words := func(rte, preserve bool) int {
		w, err := withModes(scaleShader, rte, preserve)
		if err != nil {
			t.Fatal(err)
		}
		return 4 * len(w)
	}
	all := words(true, true)
	if all != len(scaleShader) {
		t.Errorf("%d bytes, the shader has %d", all, len(scaleShader))
	}
	const mode = 4 * (2 + 4) // a capability and an execution mode
	if got := words(true, false); got != all-mode {
		t.Errorf("without one mode: %d bytes of %d", got, all)
	}
	if got := words(false, false); got > all-2*mode-8 {
		t.Errorf("without modes and extension: %d bytes of %d", got, all)
	}
	for _, bad := range [][]byte{nil, []byte("abcd"), make([]byte, 64), scaleShader[:22], append(append([]byte(nil), scaleShader[:20]...), 0, 0, 0, 0)} {
		if _, err := withModes(bad, true, true); err == nil {
			t.Errorf("accepted %d bytes", len(bad))
		}
	}
}
