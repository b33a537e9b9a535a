//go:build linux && (amd64 || arm64) && cgo && !novulkan

package vk

import (
	"slices"
	"sync"
	"testing"

	vulkan "github.com/vulkan-go/vulkan"
)

// TestTransfers moves more than the staging buffer holds through it, whether the host sees the memory or not.
func TestTransfers(t *testing.T) {
	d := openAny(t, Options{})
	for _, kind := range []Kind{Local, Upload, Readback} {
		b := newBuffer(t, d, 40<<20, kind)
		in, out := make([]byte, b.Size()-4), make([]byte, b.Size()-4)
		for i := range in {
			in[i] = byte(i * 7 >> 3)
		}
		if err := b.Write(4, in); err != nil {
			t.Fatal(err)
		}
		if err := b.Read(4, out); err != nil {
			t.Fatal(err)
		}
		if string(in) != string(out) {
			t.Errorf("kind %d: the bytes differ", kind)
		}
		if b.Bytes() != nil {
			clear(out)
			if err := b.staged(Readback, 4, out); err != nil || string(in) != string(out) {
				t.Errorf("kind %d, staged: %v", kind, err)
			}
			in[0]++
			if err := b.staged(Upload, 4, in); err != nil {
				t.Error(err)
			}
			if err := b.staged(Readback, 4, out); err != nil || string(in) != string(out) {
				t.Errorf("kind %d, staged up: %v", kind, err)
			}
		}
	}
}

// TestMemory sees blocks shared, and freed with their last buffer.
func TestMemory(t *testing.T) {
	d := openAny(t, Options{})
	used := d.MemoryUsed()
	var all []*Buffer
	for range 100 {
		b, err := d.NewBuffer(100, Local)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b)
	}
	if got := d.MemoryUsed() - used; got != sharedBlock {
		t.Errorf("100 small buffers take %d bytes", got)
	}
	for _, b := range all {
		b.Free()
	}
	if d.MemoryUsed() != used {
		t.Errorf("%d bytes are left", d.MemoryUsed()-used)
	}
	for _, n := range []int64{0, -1, d.Info().MaxAllocation + 1} {
		if _, err := d.NewBuffer(n, Local); err == nil {
			t.Errorf("allocated %d bytes", n)
		}
	}
}

// TestMemoryTypes: what a buffer lies in where there are several kinds of memory, and what when that is full.
func TestMemoryTypes(t *testing.T) {
	const (
		local, cached = vulkan.MemoryPropertyDeviceLocalBit, vulkan.MemoryPropertyHostCachedBit
		size          = 8 << 30
	)
	card := func(heaps []int64, types map[vulkan.MemoryPropertyFlagBits]uint32, order ...vulkan.MemoryPropertyFlagBits) *Device {
		p := &physical{info: DeviceInfo{Memory: size}}
		for _, s := range heaps {
			p.memory.MemoryHeaps[p.memory.MemoryHeapCount].Size = vulkan.DeviceSize(s)
			p.memory.MemoryHeapCount++
		}
		for _, flags := range order {
			p.memory.MemoryTypes[p.memory.MemoryTypeCount] = vulkan.MemoryType{PropertyFlags: vulkan.MemoryPropertyFlags(flags), HeapIndex: types[flags]}
			p.memory.MemoryTypeCount++
		}
		return &Device{phys: p}
	}
	types := map[vulkan.MemoryPropertyFlagBits]uint32{0: 1, local: 0, visible: 1, visible | cached: 1}
	order := []vulkan.MemoryPropertyFlagBits{0, local, visible, visible | cached, local | visible}
	types[local|visible] = 0
	whole := card([]int64{size, 64 << 30}, types, order...)
	types[local|visible] = 2
	window := card([]int64{size, 64 << 30, 256 << 20}, types, order...)
	const flushed, uncached = local | vulkan.MemoryPropertyHostVisibleBit | cached, local | visible | 0xc0
	phone := card([]int64{size}, nil, uncached, visible, flushed)
	for _, c := range []struct {
		name string
		d    *Device
		bits uint32
		kind Kind
		want []uint32
	}{
		{"all visible", whole, 31, Local, []uint32{4, 1}}, {"all visible", whole, 31, Upload, []uint32{4, 2, 3}}, {"all visible", whole, 31, Readback, []uint32{3, 2, 4}},
		{"a window", window, 31, Local, []uint32{1}}, {"a window", window, 31, Upload, []uint32{4, 2, 3}},
		{"the host's alone", whole, 1 | 4, Local, []uint32{0, 2}}, {"none", whole, 1, Upload, nil},
		{"none that is coherent on the device", phone, 7, Local, []uint32{2}}, {"none that is coherent on the device", phone, 7, Upload, []uint32{1}},
	} {
		got, err := c.d.memoryTypes(c.bits, c.kind)
		if !slices.Equal(got, c.want) || (err == nil) != (len(c.want) > 0) {
			t.Errorf("%s, kind %d: types %v, want %v (%v)", c.name, c.kind, got, c.want, err)
		}
	}
	if inPlace(flushed) || !inPlace(local|visible) {
		t.Errorf("memory that the host would have to flush is used in place: %v, that it need not: %v", inPlace(flushed), inPlace(local|visible))
	}
}

// BenchmarkWrite measures how fast weights get to the device: in place from one thread and from four, where the host sees its
// memory, and through the staging buffer.
func BenchmarkWrite(b *testing.B) {
	d := openAny(b, Options{})
	const size, threads = 256 << 20, 4
	buf, p := newBuffer(b, d, size, Local), make([]byte, size)
	for i := range p {
		p[i] = byte(i)
	}
	run := func(name string, write func() error) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(size)
			for b.Loop() {
				if err := write(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	if buf.Bytes() != nil {
		run("in place", func() error { return buf.Write(0, p) })
		run("in place, threads", func() error {
			var g sync.WaitGroup
			for i := range threads {
				g.Go(func() { copy(buf.Bytes()[i*size/threads:], p[i*size/threads:(i+1)*size/threads]) })
			}
			g.Wait()
			return nil
		})
	}
	run("staged", func() error { return buf.staged(Upload, 0, p) })
	run("read", func() error { return buf.Read(0, p) })
}
