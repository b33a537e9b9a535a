package units

import (
	"encoding/binary"
	"errors"
	"testing"

	"dchain/units/vk"
)

// TestVulkanGarbage: whatever the buffers hold that an operation reads, as they may after one that has failed, or that was awaited
// in vain, it reads and writes nothing but its buffers and arrays.
func TestVulkanGarbage(t *testing.T) {
	oldChecked, oldShort, oldTiled, oldGroup := vk.Checked, shortRows, tiledRows, groupTile
	defer func() {
		vk.Checked, shortRows, tiledRows, groupTile, attendTiled = oldChecked, oldShort, oldTiled, oldGroup, false
	}()
	vk.Checked = true
	for _, c := range []struct {
		name       string
		rows       int // of the batch
		shortRows  int
		tiled      int // rows from which they share tiles
		group      int
		onMatrices bool
	}{
		{"one row", 1, oldShort, oldTiled, oldGroup, false}, {"short", 3, oldShort, oldTiled, oldGroup, false},
		{"grouped heads", 3, 0, oldTiled, 2, false}, {"long", 3, 0, oldTiled, 0, false},
		{"tiles of matrices", 3, 0, 1, 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			shortRows, tiledRows, groupTile, attendTiled = c.shortRows, c.tiled, c.group, c.onMatrices
			d := vulkanTest(t, VulkanOptions{})
			e := testLayer(t, d).(*vulkanExecutable)
			for i := range e.prog.Ops {
				if op := &e.prog.Ops[i]; op.Kind == OpAttend {
					op.Cap = 0 // which makes infinite scores finite
				}
			}
			garble(t, d, e, c.rows)
		})
	}
}

// garble runs the operations of a step of that many rows on garbage of several kinds, one group after the other.
func garble(t *testing.T, d *vulkanDevice, e *vulkanExecutable, n int) {
	t.Helper()
	rows, s := make([]Row, n), gateSeries(7)
	for i := range rows {
		rows[i].Pos = testCtx - n + i
	}
	if err := e.Run(rows, s.values(n*testHidden, 1), make([]float32, n*testHidden)); err != nil {
		t.Fatal(err)
	}
	r, err := e.cutOf(e.recordings[e.order[len(e.order)-1]])
	if err != nil {
		t.Fatal(err)
	}
	buffers := append([]*vk.Buffer(nil), e.prog.Cache.(*vulkanCache).layers...)
	buffers = append(buffers, e.bufs...)
	for _, p := range e.scratch {
		buffers = append(buffers, p.buf)
	}
	most := int64(0)
	for _, b := range buffers {
		most = max(most, b.Size())
	}
	garbage, err := d.vk.NewBuffer(most, vk.Upload)
	if err != nil {
		t.Fatal(err)
	}
	defer garbage.Free()
	before, after := d.vk.NewCommands(), d.vk.NewCommands()
	defer before.Free()
	defer after.Free()
	for _, b := range buffers {
		before.Copy(b, 0, garbage, 0, b.Size())
	}
	before.CopyBarrier()
	after.CopyBarrier()
	if err := errors.Join(before.End(), after.End()); err != nil {
		t.Fatal(err)
	}
	for name, word := range map[string]func() uint32{
		"random words": func() uint32 { s.next(); return uint32(s >> 32) },
		"ones":         func() uint32 { return 0xffffffff },
		"infinities":   func() uint32 { return 0x7f800000 },
		"large values": func() uint32 { s.next(); return 0x7f7fffff ^ uint32(s>>32)&0x8000ffff },
	} {
		for at := range most / 4 {
			binary.LittleEndian.PutUint32(garbage.Bytes()[4*at:], word())
		}
		for i, g := range r.groups {
			pending, err := d.vk.SubmitAround(r.cmds, partOf(i), before, after)
			if err == nil {
				err = pending.Wait()
			}
			if err != nil {
				t.Fatalf("%d rows, %s before %s: %v", n, name, e.prog.Ops[g.first].Kind, err)
			}
		}
	}
}
