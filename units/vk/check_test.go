//go:build linux && (amd64 || arm64) && cgo && !novulkan

package vk

import (
	_ "embed"
	"encoding/binary"
	"strings"
	"testing"
)

//go:embed testdata/reach.spv
var reachShader []byte

// TestChecked: an index beyond what is bound is reported, also where the buffer goes on, and so is one beyond an array of a shader's
// own, for the lengths that it is specialised with; the last one within is not.
func TestChecked(t *testing.T) {
	openAny(t, Options{}) // skips
	defer func(old bool) { Checked = old }(Checked)
	Checked = true
	within := [5]uint32{2, 4, 5, 11, 3}
	for i, want := range []string{"binding 0", "binding 1", "binding 2", "of a workgroup", "of an invocation", ""} {
		indices := within
		if want != "" {
			indices[i]++
		}
		err := reach(t, indices)
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `"reach [12]"`)) {
			t.Errorf("indices %d: %v, want %q", indices, err, want)
		}
	}
}

// reach runs testdata/reach.comp on a device of its own: of its buffers 3 vectors, 5 values and 6 counts are bound, and 12 and 4 words
// are its own.
func reach(t *testing.T, indices [5]uint32) error {
	d, err := Open(Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	p, err := d.NewPipeline(PipelineSpec{Name: "reach", Code: reachShader, Bindings: 3, PushBytes: 20, Constants: []uint32{12}})
	if err != nil {
		t.Fatal(err)
	}
	b, err := d.NewBuffer(1<<10, Local)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Free()
	c := d.NewCommands()
	defer c.Free()
	var push []byte
	for _, i := range indices {
		push = binary.LittleEndian.AppendUint32(push, i)
	}
	c.Dispatch(p, push, 1, 1, 1, Binding{Buffer: b, Size: 3 * 16}, Binding{Buffer: b, Offset: 256, Size: 4 + 5*4}, Binding{Buffer: b, Offset: 512, Size: 6 * 4})
	c.CopyBarrier()
	if err := c.End(); err != nil {
		t.Fatal(err)
	}
	return d.Run(c)
}
