//go:build linux && (amd64 || arm64) && cgo && !novulkan

package vk

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"

	vulkan "github.com/vulkan-go/vulkan"
)

const (
	sharedBlock  = 32 << 20 // memory that buffers of up to sharedBuffer bytes share
	sharedBuffer = 4 << 20
	stagingBytes = 16 << 20
)

// block is one allocation of device memory; it is freed with its last buffer.
type block struct {
	handle vulkan.DeviceMemory
	typ    uint32
	size   int64
	next   int64  // offset of the next buffer, for a shared block
	live   int    // buffers
	mapped []byte // nil if the host does not use it in place
}

// Buffer is a storage buffer.
type Buffer struct {
	dev    *Device
	block  *block
	handle vulkan.Buffer
	size   int64
	offset int64 // in the block
	cached bool  // the host may read it in place at full speed, if it uses it in place
}

const visible = vulkan.MemoryPropertyHostVisibleBit | vulkan.MemoryPropertyHostCoherentBit

// inPlace says that the host writes and reads memory of these properties where it lies. Memory that is not coherent is left to the
// device: the host would have to flush each write.
func inPlace(flags vulkan.MemoryPropertyFlagBits) bool { return flags&visible == visible }

// memoryTypes are the types for a kind among those that bits allows, best first: the others are for when one is full. Device
// memory that the host sees may be less than all of it even where the driver says otherwise.
func (d *Device) memoryTypes(bits uint32, kind Kind) ([]uint32, error) {
	const (
		local    = vulkan.MemoryPropertyDeviceLocalBit
		cached   = vulkan.MemoryPropertyHostCachedBit
		anything = vulkan.MemoryPropertyFlagBits(0)
		// special are kinds of memory that take features of their own: lazily allocated, protected, AMD's coherent and uncached.
		special = 0x10 | 0x20 | 0x40 | 0x80
	)
	wishes := map[Kind][]vulkan.MemoryPropertyFlagBits{
		Local:    {local | visible, local},
		Upload:   {local | visible, visible},
		Readback: {visible | cached, visible},
	}[kind]
	var types []uint32
	m := &d.phys.memory
	take := func(want vulkan.MemoryPropertyFlagBits) {
		for i := range m.MemoryTypeCount {
			flags := vulkan.MemoryPropertyFlagBits(m.MemoryTypes[i].PropertyFlags)
			if bits>>i&1 == 0 || flags&want != want || flags&special != 0 || slices.Contains(types, i) {
				continue
			}
			// A small window into device memory is kept for Upload.
			window := inPlace(flags) && int64(m.MemoryHeaps[m.MemoryTypes[i].HeapIndex].Size) < d.phys.info.Memory
			if kind == Local && want != anything && window {
				continue
			}
			types = append(types, i)
		}
	}
	for _, want := range wishes {
		take(want)
	}
	if kind == Local && len(types) == 0 {
		take(anything)
	}
	if len(types) == 0 {
		return nil, Unavailable(fmt.Sprintf("no memory of kind %d", kind))
	}
	return types, nil
}

// NewBuffer allocates a buffer of at least one byte. Its contents are undefined.
func (d *Device) NewBuffer(bytes int64, kind Kind) (*Buffer, error) {
	b, err := d.newBuffer(bytes, kind)
	if err != nil {
		return nil, fmt.Errorf("allocating %d bytes on %s (%d in use): %w", bytes, d.phys.info.Name, d.MemoryUsed(), err)
	}
	return b, nil
}

func (d *Device) newBuffer(bytes int64, kind Kind) (*Buffer, error) {
	if bytes < 1 || bytes > d.phys.info.MaxAllocation {
		return nil, fmt.Errorf("the device allows 1 to %d", d.phys.info.MaxAllocation)
	}
	const usage = vulkan.BufferUsageStorageBufferBit | vulkan.BufferUsageTransferSrcBit | vulkan.BufferUsageTransferDstBit
	info := vulkan.BufferCreateInfo{SType: vulkan.StructureTypeBufferCreateInfo, Size: vulkan.DeviceSize(padTo(bytes, 4)),
		Usage: vulkan.BufferUsageFlags(usage), SharingMode: vulkan.SharingModeExclusive}
	var handle vulkan.Buffer
	r := call(func() vulkan.Result { return vulkan.CreateBuffer(d.handle, &info, nil, &handle) })
	info.Free()
	if err := d.check("vkCreateBuffer", r); err != nil {
		return nil, err
	}
	b := &Buffer{dev: d, handle: handle, size: bytes}
	var req vulkan.MemoryRequirements
	err := d.check("vkGetBufferMemoryRequirements", fill(func() { vulkan.GetBufferMemoryRequirements(d.handle, handle, &req) }))
	if err == nil {
		req.Deref()
		size, align, bits := int64(req.Size), int64(req.Alignment), req.MemoryTypeBits
		req.Free()
		err = b.place(size, align, bits, kind)
	}
	if err != nil {
		vulkan.DestroyBuffer(d.handle, handle, nil)
		return nil, err
	}
	return b, nil
}

// place finds memory for the buffer and binds it.
func (b *Buffer) place(size, align int64, bits uint32, kind Kind) error {
	d := b.dev
	types, err := d.memoryTypes(bits, kind)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, typ := range types {
		if err = b.reserveLocked(size, align, typ); !errors.Is(err, ErrOutOfMemory) {
			break
		}
	}
	if err != nil {
		return err
	}
	b.block.live++
	r := vulkan.BindBufferMemory(d.handle, b.handle, b.block.handle, vulkan.DeviceSize(b.offset))
	if err := d.check("vkBindBufferMemory", int(r)); err != nil {
		d.releaseLocked(b.block)
		return err
	}
	return nil
}

// reserveLocked finds memory of a type.
func (b *Buffer) reserveLocked(size, align int64, typ uint32) error {
	d := b.dev
	flags := vulkan.MemoryPropertyFlagBits(d.phys.memory.MemoryTypes[typ].PropertyFlags)
	b.cached = flags&vulkan.MemoryPropertyHostCachedBit != 0
	var err error
	if size > sharedBuffer {
		b.block, err = d.allocateLocked(size, typ)
		return err
	}
	for _, k := range d.blocks {
		if k.typ == typ && padTo(k.next, align)+size <= k.size {
			b.block = k
			break
		}
	}
	if b.block == nil {
		if b.block, err = d.allocateLocked(sharedBlock, typ); err != nil {
			return err
		}
		d.blocks = append(d.blocks, b.block)
	}
	b.offset = padTo(b.block.next, align)
	b.block.next = b.offset + size
	return nil
}

// allocateLocked allocates and, for use in place, maps memory.
func (d *Device) allocateLocked(size int64, typ uint32) (*block, error) {
	info := vulkan.MemoryAllocateInfo{SType: vulkan.StructureTypeMemoryAllocateInfo, AllocationSize: vulkan.DeviceSize(size), MemoryTypeIndex: typ}
	var handle vulkan.DeviceMemory
	r := call(func() vulkan.Result { return vulkan.AllocateMemory(d.handle, &info, nil, &handle) })
	info.Free()
	if err := d.check("vkAllocateMemory", r); err != nil {
		return nil, err
	}
	k := &block{handle: handle, typ: typ, size: size}
	if inPlace(vulkan.MemoryPropertyFlagBits(d.phys.memory.MemoryTypes[typ].PropertyFlags)) {
		var at unsafe.Pointer
		r := vulkan.MapMemory(d.handle, handle, 0, vulkan.DeviceSize(size), 0, &at)
		if err := d.check("vkMapMemory", int(r)); err != nil {
			vulkan.FreeMemory(d.handle, handle, nil)
			return nil, err
		}
		k.mapped = unsafe.Slice((*byte)(at), size)
	}
	d.used += size
	return k, nil
}

// releaseLocked takes one buffer from a block and frees the block after the last.
func (d *Device) releaseLocked(k *block) {
	k.live--
	if k.live > 0 {
		return
	}
	for i, other := range d.blocks {
		if other == k {
			d.blocks = append(d.blocks[:i], d.blocks[i+1:]...)
			break
		}
	}
	vulkan.FreeMemory(d.handle, k.handle, nil)
	d.used -= k.size
}

// MemoryUsed is what the buffers of the device take, in bytes.
func (d *Device) MemoryUsed() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.used
}

// Size is the buffer's length in bytes.
func (b *Buffer) Size() int64 { return b.size }

// Bytes is the memory itself, to be written (Upload) or read (Readback, after the commands that write it) in place. It
// is nil for a Local buffer that the host does not see.
func (b *Buffer) Bytes() []byte {
	if b.block.mapped == nil {
		return nil
	}
	return b.block.mapped[b.offset : b.offset+b.size : b.offset+b.size]
}

// Write copies p to the buffer at an offset; both are multiples of 4. The commands that use it must not be running.
func (b *Buffer) Write(off int64, p []byte) error {
	if m := b.Bytes(); m != nil {
		copy(m[off:off+int64(len(p))], p)
		return nil
	}
	return b.staged(Upload, off, p)
}

// Read copies from the buffer at an offset to p; both are multiples of 4. The commands that write it must have ended.
func (b *Buffer) Read(off int64, p []byte) error {
	if m := b.Bytes(); m != nil && b.cached {
		copy(p, m[off:off+int64(len(p))])
		return nil
	}
	return b.staged(Readback, off, p)
}

// staged moves p through a buffer that both sides see, in pieces.
func (b *Buffer) staged(kind Kind, off int64, p []byte) error {
	d := b.dev
	if off%4 != 0 || len(p)%4 != 0 || off < 0 || off+int64(len(p)) > b.size {
		panic(fmt.Sprintf("vk: transfer of %d bytes at %d of %d", len(p), off, b.size))
	}
	d.stagingMu.Lock()
	defer d.stagingMu.Unlock()
	way := &d.staging[kind-Upload]
	if *way == nil {
		s, err := d.NewBuffer(stagingBytes, kind)
		if err != nil {
			return err
		}
		*way = s
	}
	for len(p) > 0 {
		n := min(len(p), stagingBytes)
		c := d.NewCommands()
		if kind == Upload {
			copy((*way).Bytes(), p[:n])
			c.Copy(b, off, *way, 0, int64(n))
		} else {
			c.CopyBarrier()
			c.Copy(*way, 0, b, off, int64(n))
		}
		c.CopyBarrier()
		err := c.End()
		if err == nil {
			err = d.Run(c)
		}
		c.Free()
		if err != nil {
			return err
		}
		if kind == Readback {
			copy(p, (*way).Bytes()[:n])
		}
		p, off = p[n:], off+int64(n)
	}
	return nil
}

// Free releases the buffer; no commands that use it may be running, and none may be run again.
func (b *Buffer) Free() {
	if b.handle == nil || b.dev.hangs.Load() {
		return
	}
	vulkan.DestroyBuffer(b.dev.handle, b.handle, nil)
	b.handle = nil
	b.dev.mu.Lock()
	defer b.dev.mu.Unlock()
	b.dev.releaseLocked(b.block)
}

// padTo rounds n up to a multiple of align.
func padTo(n, align int64) int64 { return (n + align - 1) / align * align }
