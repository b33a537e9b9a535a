//go:build linux && (amd64 || arm64) && cgo && !novulkan

package vk

/*
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"slices"
	"time"
	"unsafe"

	vulkan "github.com/vulkan-go/vulkan"
)

// Pipeline is a specialised compute shader, ready to be dispatched.
type Pipeline struct {
	name      string
	handle    vulkan.Pipeline
	layout    vulkan.PipelineLayout
	setLayout vulkan.DescriptorSetLayout
	bindings  int
	push      int
}

// NewPipeline compiles a shader. Float execution modes that the device does not have are taken out of it first: whether
// it computes the right bits without them is for a gate to find out. Pipelines live as long as the device.
func (d *Device) NewPipeline(spec PipelineSpec) (*Pipeline, error) {
	p := &Pipeline{name: spec.Name, bindings: spec.Bindings, push: spec.PushBytes}
	if err := d.build(p, spec); err != nil {
		return nil, fmt.Errorf("compiling shader %q on %s: %w", spec.Name, d.phys.info.Name, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pipes = append(d.pipes, p)
	return p, nil
}

func (d *Device) build(p *Pipeline, spec PipelineSpec) error {
	info := d.Info()
	switch {
	case spec.PushBytes > info.MaxPush:
		return fmt.Errorf("%d bytes of push constants, the device has %d", spec.PushBytes, info.MaxPush)
	case spec.Bindings > info.MaxBindings:
		return fmt.Errorf("%d storage buffers, the device has %d for a shader", spec.Bindings, info.MaxBindings)
	case spec.Subgroup != 0 && (spec.Subgroup < info.MinSubgroup || spec.Subgroup > info.MaxSubgroup):
		return fmt.Errorf("subgroups of %d, the device has %d to %d", spec.Subgroup, info.MinSubgroup, info.MaxSubgroup)
	}
	code, err := withModes(spec.Code, info.RoundRTE, info.PreserveNaN)
	if err != nil {
		return err
	}
	bindings := spec.Bindings
	if d.checks != nil {
		d.mu.Lock()
		code, err = d.checks.addLocked(fmt.Sprint(spec.Name, " ", spec.Constants), code, bindings)
		d.mu.Unlock()
		if err != nil {
			return err
		}
		bindings++
	}
	if p.setLayout, err = d.setLayout(bindings); err != nil {
		return err
	}
	var layout vulkan.PipelineLayout
	r := C.shim_pipeline_layout(d.shim, id(unsafe.Pointer(p.setLayout)), C.uint32_t(spec.PushBytes), (*C.uint64_t)(unsafe.Pointer(&layout)))
	if err := d.check("vkCreatePipelineLayout", int(r)); err != nil {
		return err
	}
	p.layout = layout
	required := spec.Subgroup
	if !info.SubgroupControl {
		required = 0 // there is one size only
	}
	var handle vulkan.Pipeline
	r = C.shim_pipeline(d.shim, id(unsafe.Pointer(d.cache)), (*C.uint32_t)(unsafe.Pointer(unsafe.SliceData(code))),
		C.size_t(4*len(code)), id(unsafe.Pointer(layout)), (*C.uint32_t)(unsafe.Pointer(unsafe.SliceData(spec.Constants))), C.uint32_t(len(spec.Constants)),
		C.uint32_t(required), (*C.uint64_t)(unsafe.Pointer(&handle)))
	if err := d.check("vkCreateComputePipelines", int(r)); err != nil {
		vulkan.DestroyPipelineLayout(d.handle, layout, nil)
		return err
	}
	p.handle = handle
	return nil
}

// setLayout is the layout of a set of n storage buffers.
func (d *Device) setLayout(n int) (vulkan.DescriptorSetLayout, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if l, ok := d.layouts[n]; ok {
		return l, nil
	}
	var layout vulkan.DescriptorSetLayout
	r := C.shim_set_layout(d.shim, C.uint32_t(n), (*C.uint64_t)(unsafe.Pointer(&layout)))
	if err := d.check("vkCreateDescriptorSetLayout", int(r)); err != nil {
		return nil, err
	}
	d.layouts[n] = layout
	return layout, nil
}

// id is a handle as the shim takes it.
func id(h unsafe.Pointer) C.uint64_t { return C.uint64_t(uintptr(h)) }

// Commands is a list of commands: filled, ended, and then run any number of times, one at a time: the next when the one before has
// been waited for.
type Commands struct {
	dev        *Device
	commands   []C.shim_command
	bindings   []C.shim_binding
	setLayouts []C.uint64_t
	push       []byte
	times      int
	cuts       int

	listBuffers
	queries     vulkan.QueryPool
	descriptors vulkan.DescriptorPool
}

// NewCommands starts an empty list.
func (d *Device) NewCommands() *Commands { return &Commands{dev: d} }

// Dispatch adds x * y * z workgroups of p, with the bindings 0, 1, ... and push constants. Nothing orders it after the
// commands before it but a barrier.
func (c *Commands) Dispatch(p *Pipeline, push []byte, x, y, z int, bindings ...Binding) {
	limits := &c.dev.phys.info
	if len(bindings) != p.bindings || len(push) != p.push {
		panic(fmt.Sprintf("vk: %s takes %d bindings and %d bytes, not %d and %d", p.name, p.bindings, p.push, len(bindings), len(push)))
	}
	if c.dev.checks != nil {
		bindings = append(slices.Clip(bindings), Binding{Buffer: c.dev.checks.report})
	}
	if x < 1 || y < 1 || z < 1 || x > limits.MaxGroups[0] || y > limits.MaxGroups[1] || z > limits.MaxGroups[2] {
		panic(fmt.Sprintf("vk: %d x %d x %d workgroups of %s, the device allows %v", x, y, z, p.name, limits.MaxGroups))
	}
	c.commands = append(c.commands, C.shim_command{
		kind: C.SHIM_DISPATCH, groups: [3]C.uint32_t{C.uint32_t(x), C.uint32_t(y), C.uint32_t(z)},
		pipeline: id(unsafe.Pointer(p.handle)), layout: id(unsafe.Pointer(p.layout)), set: C.uint32_t(len(c.setLayouts)),
		first_binding: C.uint32_t(len(c.bindings)), bindings: C.uint32_t(len(bindings)),
		push_offset: C.uint32_t(len(c.push)), push_bytes: C.uint32_t(len(push)),
	})
	c.setLayouts = append(c.setLayouts, id(unsafe.Pointer(p.setLayout)))
	c.push = append(c.push, push...)
	for i, b := range bindings {
		size := b.Size
		if size == 0 {
			size = b.Buffer.size - b.Offset
		}
		size = padTo(size, 4)
		if b.Offset < 0 || b.Offset%limits.OffsetAlign != 0 || size < 1 || b.Offset+size > padTo(b.Buffer.size, 4) || size > limits.MaxRange {
			panic(fmt.Sprintf("vk: binding %d of %s: %d bytes at %d of %d, the range is %d, the alignment %d",
				i, p.name, size, b.Offset, b.Buffer.size, limits.MaxRange, limits.OffsetAlign))
		}
		c.bindings = append(c.bindings, C.shim_binding{id(unsafe.Pointer(b.Buffer.handle)), C.uint64_t(b.Offset), C.uint64_t(size)})
	}
}

// Barrier makes the dispatches before it finish, and their writes seen, before those after it begin.
func (c *Commands) Barrier() {
	c.commands = append(c.commands, C.shim_command{kind: C.SHIM_BARRIER})
}

// CopyBarrier is Barrier for copies too, and for the host where it stands last.
func (c *Commands) CopyBarrier() {
	c.commands = append(c.commands, C.shim_command{kind: C.SHIM_COPY_BARRIER})
}

// Copy copies n bytes.
func (c *Commands) Copy(dst *Buffer, dstOff int64, src *Buffer, srcOff, n int64) {
	if n < 1 || dstOff < 0 || srcOff < 0 || dstOff+n > dst.size || srcOff+n > src.size {
		panic(fmt.Sprintf("vk: copy of %d bytes from %d of %d to %d of %d", n, srcOff, src.size, dstOff, dst.size))
	}
	c.commands = append(c.commands, C.shim_command{kind: C.SHIM_COPY, src: id(unsafe.Pointer(src.handle)), dst: id(unsafe.Pointer(dst.handle)),
		src_offset: C.uint64_t(srcOff), dst_offset: C.uint64_t(dstOff), size: C.uint64_t(n)})
}

// Timestamp notes the time when the commands before it have ended, if the device can.
func (c *Commands) Timestamp() {
	if c.dev.phys.info.TimestampNanos == 0 {
		return
	}
	c.commands = append(c.commands, C.shim_command{kind: C.SHIM_TIMESTAMP})
	c.times++
}

// Cut ends a part of the list: another list can be run between it and the next.
func (c *Commands) Cut() {
	c.commands = append(c.commands, C.shim_command{kind: C.SHIM_CUT})
	c.cuts++
}

// End records the list. After an error only Free may be called.
func (c *Commands) End() error {
	if err := c.end(); err != nil {
		return fmt.Errorf("recording %d commands on %s: %w", len(c.commands), c.dev.phys.info.Name, err)
	}
	return nil
}

func (c *Commands) end() error {
	d := c.dev
	if err := c.takeBuffers(); err != nil {
		return err
	}
	if c.times > 0 {
		info := vulkan.QueryPoolCreateInfo{SType: vulkan.StructureTypeQueryPoolCreateInfo, QueryType: vulkan.QueryTypeTimestamp, QueryCount: uint32(c.times)}
		var queries vulkan.QueryPool
		r := call(func() vulkan.Result { return vulkan.CreateQueryPool(d.handle, &info, nil, &queries) })
		info.Free()
		if err := d.check("vkCreateQueryPool", r); err != nil {
			return err
		}
		c.queries = queries
	}
	var descriptors vulkan.DescriptorPool
	r2 := C.shim_record(d.shim, (*unsafe.Pointer)(unsafe.Pointer(unsafe.SliceData(c.buffers))), unsafe.SliceData(c.commands), C.uint32_t(len(c.commands)),
		unsafe.SliceData(c.bindings), unsafe.SliceData(c.setLayouts), C.uint32_t(len(c.setLayouts)), C.uint32_t(len(c.bindings)),
		(*C.uint8_t)(unsafe.SliceData(c.push)), id(unsafe.Pointer(c.queries)), (*C.uint64_t)(unsafe.Pointer(&descriptors)))
	c.descriptors = descriptors
	return d.check("recording a command buffer", int(r2))
}

// spareBuffers is how many command buffers of lists that were freed are kept for others: making one, and the pool it comes from, can
// take a driver a millisecond.
const spareBuffers = 8

// listBuffers are what a list is recorded in.
type listBuffers struct {
	pool    vulkan.CommandPool
	buffers []vulkan.CommandBuffer // one more than cuts
}

// takeBuffers takes buffers that nothing is recorded in any more, or makes them.
func (c *Commands) takeBuffers() error {
	d := c.dev
	if c.cuts == 0 {
		if spare, ok := d.takeSpare(); ok {
			c.listBuffers = spare
			return d.check("vkResetCommandPool", int(vulkan.ResetCommandPool(d.handle, c.pool, 0)))
		}
	}
	poolInfo := vulkan.CommandPoolCreateInfo{SType: vulkan.StructureTypeCommandPoolCreateInfo, QueueFamilyIndex: d.phys.family}
	var pool vulkan.CommandPool
	r := call(func() vulkan.Result { return vulkan.CreateCommandPool(d.handle, &poolInfo, nil, &pool) })
	poolInfo.Free()
	if err := d.check("vkCreateCommandPool", r); err != nil {
		return err
	}
	c.pool = pool
	allocate := vulkan.CommandBufferAllocateInfo{SType: vulkan.StructureTypeCommandBufferAllocateInfo, CommandPool: pool,
		Level: vulkan.CommandBufferLevelPrimary, CommandBufferCount: uint32(c.cuts + 1)}
	buffers := make([]vulkan.CommandBuffer, c.cuts+1)
	r = call(func() vulkan.Result { return vulkan.AllocateCommandBuffers(d.handle, &allocate, buffers) })
	allocate.Free()
	if err := d.check("vkAllocateCommandBuffers", r); err != nil {
		return err
	}
	c.buffers = buffers
	return nil
}

// takeSpare takes a buffer of a list that was freed, if there is one.
func (d *Device) takeSpare() (spare listBuffers, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n := len(d.spare); n > 0 {
		spare, ok = d.spare[n-1], true
		d.spare = d.spare[:n-1]
	}
	return spare, ok
}

// freeBuffers keeps a buffer for another list, or gives back what there is.
func (d *Device) freeBuffers(b listBuffers) {
	if b.pool == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(b.buffers) == 1 && len(d.spare) < spareBuffers {
		d.spare = append(d.spare, b)
		return
	}
	vulkan.DestroyCommandPool(d.handle, b.pool, nil)
}

// runDeadline bounds the wait for a command list: longer than any work, short enough to notice a device that hangs.
const runDeadline = 10 * time.Minute

// errLost is the error of all calls after the one that failed.
func (d *Device) errLost() error {
	return fmt.Errorf("running commands on %s: an earlier call failed: %w", d.phys.info.Name, ErrDeviceLost)
}

// Run executes an ended list and waits for it. After an error of the device the list must not be used again.
func (d *Device) Run(c *Commands) error {
	p, err := d.Submit(c)
	if err != nil {
		return err
	}
	return p.Wait()
}

// Pending is a submitted list: Wait must be called, once.
type Pending struct {
	dev   *Device
	fence vulkan.Fence
}

// Submit is Run without the waiting. What is submitted is executed in this order; nothing but the barriers in the lists orders
// their commands.
func (d *Device) Submit(c *Commands) (*Pending, error) { return d.submit(c.buffers) }

// SubmitAround is Submit with two more lists, before and after a part of c, the number of cuts that precede it, and with others
// ahead of all.
func (d *Device) SubmitAround(c *Commands, part int, before, after *Commands, first ...*Commands) (*Pending, error) {
	var buffers []vulkan.CommandBuffer
	for _, f := range first {
		buffers = append(buffers, f.buffers...)
	}
	return d.submit(slices.Concat(buffers, c.buffers[:part], before.buffers, c.buffers[part:part+1], after.buffers, c.buffers[part+1:]))
}

func (d *Device) submit(buffers []vulkan.CommandBuffer) (*Pending, error) {
	if d.lost.Load() {
		return nil, d.errLost()
	}
	fence, err := d.takeFence()
	if err == nil {
		d.queueMu.Lock()
		r := C.shim_submit(d.shim, unsafe.Pointer(d.queue), (*unsafe.Pointer)(unsafe.Pointer(unsafe.SliceData(buffers))), C.uint32_t(len(buffers)),
			id(unsafe.Pointer(fence)))
		d.queueMu.Unlock()
		err = d.check("vkQueueSubmit", int(r))
	}
	if err != nil {
		d.freeFence(fence)
		return nil, fmt.Errorf("running commands on %s: %w", d.phys.info.Name, err)
	}
	return &Pending{d, fence}, nil
}

// Wait returns when the list has been executed.
func (p *Pending) Wait() error {
	d := p.dev
	defer d.freeFence(p.fence)
	if d.lost.Load() {
		return d.errLost()
	}
	r := C.shim_wait(d.shim, id(unsafe.Pointer(p.fence)), C.uint64_t(d.spin.Nanoseconds()), C.uint64_t(runDeadline.Nanoseconds()))
	if r != 0 {
		d.giveUp(int(r))
		return fmt.Errorf("running commands on %s: %w: %w", d.phys.info.Name, ErrDeviceLost, &Error{"vkWaitForFences", int(r)})
	}
	if d.checks != nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.checks.failureLocked()
	}
	return nil
}

// giveUp notes how a wait has failed. What was awaited has ended where the driver says that the device is lost; else it may be running
// still.
func (d *Device) giveUp(result int) {
	if result != resultDeviceLost {
		d.hangs.Store(true) // first: who sees that the device is lost frees what it has
	}
	d.lose()
}

// freeFence keeps a fence, if there is one, for the next run.
func (d *Device) freeFence(fence vulkan.Fence) {
	if fence == nil || d.hangs.Load() {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fences = append(d.fences, fence)
}

// takeFence takes a fence that nothing waits for. Making one can take a driver a millisecond.
func (d *Device) takeFence() (vulkan.Fence, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n := len(d.fences); n > 0 {
		fence := d.fences[n-1]
		d.fences = d.fences[:n-1]
		return fence, nil
	}
	info := vulkan.FenceCreateInfo{SType: vulkan.StructureTypeFenceCreateInfo}
	var fence vulkan.Fence
	r := call(func() vulkan.Result { return vulkan.CreateFence(d.handle, &info, nil, &fence) })
	info.Free()
	return fence, d.check("vkCreateFence", r)
}

// Times are the intervals between consecutive timestamps of the last run.
func (c *Commands) Times() ([]time.Duration, error) {
	if c.times < 2 {
		return nil, nil
	}
	ticks := make([]uint64, c.times)
	r := vulkan.GetQueryPoolResults(c.dev.handle, c.queries, 0, uint32(c.times), uint(8*c.times), unsafe.Pointer(unsafe.SliceData(ticks)), 8,
		vulkan.QueryResultFlags(vulkan.QueryResult64Bit|vulkan.QueryResultWaitBit))
	if err := c.dev.check("vkGetQueryPoolResults", int(r)); err != nil {
		return nil, err
	}
	times := make([]time.Duration, c.times-1)
	for i := range times {
		times[i] = time.Duration(float64(ticks[i+1]-ticks[i]) * c.dev.phys.info.TimestampNanos)
	}
	return times, nil
}

// Free releases the list; it must not be running.
func (c *Commands) Free() {
	d := c.dev
	if d.hangs.Load() {
		return
	}
	if c.queries != nil {
		vulkan.DestroyQueryPool(d.handle, c.queries, nil)
	}
	if c.descriptors != nil {
		vulkan.DestroyDescriptorPool(d.handle, c.descriptors, nil)
	}
	d.freeBuffers(c.listBuffers)
	*c = Commands{dev: d}
}
