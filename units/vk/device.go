//go:build linux && (amd64 || arm64) && cgo && !novulkan

package vk

/*
#cgo CFLAGS: -O2
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	vulkan "github.com/vulkan-go/vulkan"
)

// Built says whether this program can use Vulkan at all.
const Built = true

// physical is a device as enumerated, with what opening it needs.
type physical struct {
	handle vulkan.PhysicalDevice
	api    uint32
	extra  C.shim_info
	family uint32 // queue family
	memory vulkan.PhysicalDeviceMemoryProperties
	info   DeviceInfo
}

// instance is made once and lives as long as the process: loaders do not like to be unloaded.
var instance = sync.OnceValues(func() ([]physical, error) {
	var reason *C.char
	proc := C.shim_load(&reason)
	if proc == nil {
		return nil, Unavailable("there is no Vulkan library: " + C.GoString(reason))
	}
	vulkan.SetGetInstanceProcAddr(proc)
	if err := vulkan.Init(); err != nil {
		return nil, Unavailable(fmt.Sprintf("starting the Vulkan library: %v", err))
	}
	version := min(uint32(C.shim_api_version()), vulkan.MakeVersion(1, 3, 0))
	if version < vulkan.MakeVersion(1, 1, 0) {
		return nil, Unavailable("the Vulkan library is older than version 1.1")
	}
	app := vulkan.ApplicationInfo{SType: vulkan.StructureTypeApplicationInfo, PApplicationName: "dchain\x00", ApiVersion: version}
	create := vulkan.InstanceCreateInfo{SType: vulkan.StructureTypeInstanceCreateInfo, PApplicationInfo: &app}
	var in vulkan.Instance
	r := call(func() vulkan.Result { return vulkan.CreateInstance(&create, nil, &in) })
	create.Free()
	switch err := check("vkCreateInstance", r); {
	case errors.Is(err, ErrUnavailable):
		return nil, fmt.Errorf("the Vulkan library finds no driver that works: %w", err)
	case err != nil:
		return nil, err
	}
	if err := vulkan.InitInstance(in); err != nil {
		return nil, Unavailable(fmt.Sprintf("starting the Vulkan library: %v", err))
	}
	C.shim_instance(unsafe.Pointer(in))
	var n uint32
	if err := check("vkEnumeratePhysicalDevices", int(vulkan.EnumeratePhysicalDevices(in, &n, nil))); err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, Unavailable("the Vulkan library knows no device")
	}
	handles := make([]vulkan.PhysicalDevice, n)
	if err := check("vkEnumeratePhysicalDevices", int(vulkan.EnumeratePhysicalDevices(in, &n, handles))); err != nil {
		return nil, err
	}
	return usable(int(n), func(i int, p *physical) error { return p.query(handles[i], version) })
})

// refused are the devices that cannot be used, each by its name; written once, by instance.
var refused []error

// usable are those of n devices that query does not refuse, numbered anew: one that is too old does not stand in the way of the
// others.
func usable(n int, query func(i int, p *physical) error) ([]physical, error) {
	var devices []physical
	refused = nil
	for i := range n {
		var p physical
		if err := query(i, &p); err != nil {
			refused = append(refused, err)
			continue
		}
		p.info.Index = len(devices)
		devices = append(devices, p)
	}
	if len(devices) == 0 {
		return nil, errors.Join(refused...)
	}
	return devices, nil
}

// Refused says of each device that List leaves out why.
func Refused() []error {
	if _, err := instance(); err != nil {
		return nil
	}
	return refused
}

func check(entry string, result int) error {
	if result < 0 {
		return &Error{entry, result}
	}
	return nil
}

// noMemory begins what the binding panics with where there is no memory for the copy of an argument that the driver is given.
const noMemory = "memory alloc error: "

// fill is call for an entry point without a result, which fills its argument.
func fill(entry func()) int {
	return call(func() vulkan.Result {
		entry()
		return vulkan.Success
	})
}

// call calls an entry point through the binding with an argument that the binding copies, and returns the result.
func call(entry func() vulkan.Result) (result int) {
	defer func() {
		p := recover()
		text, _ := p.(string)
		switch {
		case strings.HasPrefix(text, noMemory):
			result = resultOutOfHostMemory
		case p != nil:
			panic(p)
		}
	}()
	return int(entry())
}

var deviceTypes = map[vulkan.PhysicalDeviceType]string{
	vulkan.PhysicalDeviceTypeDiscreteGpu: "discrete", vulkan.PhysicalDeviceTypeIntegratedGpu: "integrated",
	vulkan.PhysicalDeviceTypeVirtualGpu: "virtual", vulkan.PhysicalDeviceTypeCpu: "cpu",
}

// query fills p for one device.
func (p *physical) query(handle vulkan.PhysicalDevice, instanceVersion uint32) error {
	p.handle = handle
	var props vulkan.PhysicalDeviceProperties
	if err := check("vkGetPhysicalDeviceProperties", fill(func() { vulkan.GetPhysicalDeviceProperties(handle, &props) })); err != nil {
		return err
	}
	props.Deref()
	props.Limits.Deref()
	limits := props.Limits
	defer props.Free()
	defer limits.Free()
	p.api = min(props.ApiVersion, instanceVersion)
	name, _, _ := strings.Cut(string(props.DeviceName[:]), "\x00")
	if p.api < vulkan.MakeVersion(1, 1, 0) {
		return Unavailable(fmt.Sprintf("%s has Vulkan %d.%d, want at least 1.1", name, p.api>>22, p.api>>12&0x3ff))
	}
	if err := check("vkGetPhysicalDeviceProperties2", int(C.shim_query(unsafe.Pointer(handle), C.uint32_t(p.api), &p.extra))); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := check("vkGetPhysicalDeviceMemoryProperties", fill(func() { vulkan.GetPhysicalDeviceMemoryProperties(handle, &p.memory) })); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	p.memory.Deref()
	var memory int64
	for i := range p.memory.MemoryTypeCount {
		p.memory.MemoryTypes[i].Deref()
	}
	for i := range p.memory.MemoryHeapCount {
		h := &p.memory.MemoryHeaps[i]
		h.Deref()
		if vulkan.MemoryHeapFlagBits(h.Flags)&vulkan.MemoryHeapDeviceLocalBit != 0 {
			memory = max(memory, int64(h.Size))
		}
	}
	timestamps, err := p.pickQueue()
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	x := &p.extra
	p.info = DeviceInfo{
		Name: name, Type: "other", DriverName: C.GoString(&x.driver[0]),
		API:    [2]int{int(p.api >> 22), int(p.api >> 12 & 0x3ff)},
		Memory: memory, MaxAllocation: int64(min(uint64(x.max_allocation), math.MaxInt64)),
		OffsetAlign: int64(limits.MinStorageBufferOffsetAlignment), MaxShared: int(limits.MaxComputeSharedMemorySize),
		MaxPush: int(limits.MaxPushConstantsSize), MaxInvocations: int(min(limits.MaxComputeWorkGroupInvocations, limits.MaxComputeWorkGroupSize[0])),
		MaxBindings: int(min(limits.MaxPerStageDescriptorStorageBuffers, limits.MaxDescriptorSetStorageBuffers)),
		Subgroup:    int(x.subgroup), MinSubgroup: int(x.min_subgroup), MaxSubgroup: int(x.max_subgroup),
		SubgroupControl:    x.subgroup_control != 0,
		SubgroupArithmetic: x.subgroup_ops&4 != 0, SubgroupShuffle: x.subgroup_ops&16 != 0,
		DotProduct: x.dot != 0, RoundRTE: x.rte32 != 0, PreserveNaN: x.preserve32 != 0,
	}
	p.info.MaxRange = min(int64(limits.MaxStorageBufferRange), p.info.MaxAllocation) &^ 3
	if p.info.SubgroupControl {
		p.info.MaxInvocations = min(p.info.MaxInvocations, int(x.subgroup)*int(x.max_subgroups))
	}
	if t, ok := deviceTypes[props.DeviceType]; ok {
		p.info.Type = t
	}
	for i := range p.info.MaxGroups {
		p.info.MaxGroups[i] = int(limits.MaxComputeWorkGroupCount[i])
	}
	for i := range 16 {
		p.info.DriverUUID[i], p.info.DeviceUUID[i] = byte(x.driver_uuid[i]), byte(x.device_uuid[i])
	}
	for i := range x.matrices {
		m := x.matrix[i]
		p.info.Matrices = append(p.info.Matrices, MatrixShape{int(m.m), int(m.n), int(m.k)})
	}
	if timestamps {
		p.info.TimestampNanos = float64(limits.TimestampPeriod)
	}
	return nil
}

// pickQueue chooses a family for compute alone, else the first that computes at all.
func (p *physical) pickQueue() (timestamps bool, err error) {
	var families [maxFamilies]C.shim_family
	n := C.shim_families(unsafe.Pointer(p.handle), &families[0], maxFamilies)
	best := -1
	for i, f := range families[:n] {
		flags := vulkan.QueueFlagBits(f.flags)
		if flags&vulkan.QueueComputeBit == 0 {
			continue
		}
		if best < 0 || flags&vulkan.QueueGraphicsBit == 0 {
			best = i
			timestamps = f.timestamp_bits == 64
			if flags&vulkan.QueueGraphicsBit == 0 {
				break
			}
		}
	}
	if best < 0 {
		return false, Unavailable("no queue that computes")
	}
	p.family = uint32(best)
	return timestamps, nil
}

// maxFamilies is how many queue families are looked at; devices have fewer than ten.
const maxFamilies = 32

// List describes the devices, in the order of the loader.
func List() ([]DeviceInfo, error) {
	devices, err := instance()
	if err != nil {
		return nil, err
	}
	var infos []DeviceInfo
	for i := range devices {
		infos = append(infos, devices[i].info)
	}
	return infos, nil
}

// FreeMemory is what other programs, and this one, leave of DeviceInfo.Memory now; not known where the driver does not tell.
func FreeMemory(device int) (bytes int64, known bool) {
	devices, err := instance()
	if err != nil || device < 0 || device >= len(devices) {
		return 0, false
	}
	var free C.uint64_t
	known = C.shim_free_memory(unsafe.Pointer(devices[device].handle), &free) != 0
	return int64(free), known
}

// Device is an open device. Its methods may be called concurrently.
type Device struct {
	phys     *physical
	handle   vulkan.Device
	shim     *C.shim_device
	cache    vulkan.PipelineCache
	cacheDir string
	noteTo   func(text string)
	onLost   func()
	spin     time.Duration
	lost     atomic.Bool
	hangs    atomic.Bool // lost, and may yet use what it was given: nothing is freed

	queueMu sync.Mutex // held to submit
	queue   vulkan.Queue

	mu      sync.Mutex
	layouts map[int]vulkan.DescriptorSetLayout // by number of bindings
	pipes   []*Pipeline
	blocks  []*block       // memory that small buffers share
	used    int64          // bytes allocated
	fences  []vulkan.Fence // not in use
	checks  *checks        // nil unless it is checked
	spare   []listBuffers  // not in use, one buffer each

	stagingMu sync.Mutex // held for a transfer through staging
	staging   [2]*Buffer // to and from the device; made when needed
}

// gpuSpin is how long a step is awaited without sleeping: a sleep costs 25 microseconds.
const gpuSpin = 20 * time.Millisecond

// Open opens a device. The caller closes it.
func Open(o Options) (*Device, error) {
	devices, err := instance()
	if err != nil {
		return nil, err
	}
	if o.Device < 0 || o.Device >= len(devices) {
		return nil, fmt.Errorf("opening Vulkan device %d: the last is %d", o.Device, len(devices)-1)
	}
	d := &Device{phys: &devices[o.Device], cacheDir: o.CacheDir, noteTo: o.Note, onLost: o.Lost, layouts: map[int]vulkan.DescriptorSetLayout{}}
	if !d.phys.info.CPU() {
		d.spin = gpuSpin
	}
	if err := d.open(); err != nil {
		return nil, fmt.Errorf("opening %s: %w", d.phys.info.Name, err)
	}
	return d, nil
}

func (d *Device) open() error {
	p := d.phys
	var handle unsafe.Pointer
	var shim *C.shim_device
	r := C.shim_open(unsafe.Pointer(p.handle), C.uint32_t(p.api), &p.extra, C.uint32_t(p.family), &handle, &shim)
	if err := check("vkCreateDevice", int(r)); err != nil {
		return err
	}
	d.handle, d.shim = vulkan.Device(handle), shim
	var q vulkan.Queue
	vulkan.GetDeviceQueue(d.handle, p.family, 0, &q)
	d.queue = q
	if err := d.openCache(); err != nil {
		vulkan.DestroyDevice(d.handle, nil)
		C.shim_free(d.shim)
		return err
	}
	if Checked {
		c, err := d.newChecks()
		if err != nil {
			return errors.Join(err, d.Close())
		}
		d.checks = c
	}
	return nil
}

// Info describes the device.
func (d *Device) Info() *DeviceInfo { return &d.phys.info }

// check is the package's check, and remembers a lost device.
func (d *Device) check(entry string, result int) error {
	if result == resultDeviceLost {
		d.lose()
	}
	return check(entry, result)
}

func (d *Device) lose() {
	if !d.lost.Swap(true) && d.onLost != nil {
		d.onLost()
	}
}

func (d *Device) note(format string, args ...any) {
	if d.noteTo != nil {
		d.noteTo(fmt.Sprintf(format, args...))
	}
}

// cachePath is where the pipelines of this device and driver are kept.
func (d *Device) cachePath() string {
	i := &d.phys.info
	return filepath.Join(d.cacheDir, hex.EncodeToString(i.DeviceUUID[:])+"-"+hex.EncodeToString(i.DriverUUID[:])+".pipelines")
}

// openCache makes the cache of pipelines with what earlier runs have kept, which nothing depends on.
func (d *Device) openCache() error {
	info := vulkan.PipelineCacheCreateInfo{SType: vulkan.StructureTypePipelineCacheCreateInfo}
	if d.cacheDir != "" {
		data, err := os.ReadFile(d.cachePath())
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			d.note("compiled shaders of earlier runs are not used: %v", err)
		}
		if len(data) > 0 { // the driver checks it and ignores what is not its own
			mem := C.CBytes(data)
			defer C.free(mem)
			info.InitialDataSize, info.PInitialData = uint(len(data)), mem
		}
	}
	var cache vulkan.PipelineCache
	r := call(func() vulkan.Result { return vulkan.CreatePipelineCache(d.handle, &info, nil, &cache) })
	info.Free()
	d.cache = cache
	return d.check("vkCreatePipelineCache", r)
}

// saveCache writes the compiled pipelines for the next run.
func (d *Device) saveCache() error {
	var n uint
	if err := d.check("vkGetPipelineCacheData", int(vulkan.GetPipelineCacheData(d.handle, d.cache, &n, nil))); err != nil || n == 0 {
		return err
	}
	data := make([]byte, n)
	if err := d.check("vkGetPipelineCacheData", int(vulkan.GetPipelineCacheData(d.handle, d.cache, &n, unsafe.Pointer(unsafe.SliceData(data))))); err != nil {
		return err
	}
	if err := os.MkdirAll(d.cacheDir, 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(d.cacheDir, "*.tmp")
	if err != nil {
		return err
	}
	_, err = f.Write(data[:n])
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), d.cachePath())
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

// Close waits for the device, keeps its pipelines for the next run and destroys them and the device. Buffers and commands
// are to be freed before.
func (d *Device) Close() error {
	if d.hangs.Load() {
		return fmt.Errorf("closing %s: it does not answer: %w", d.phys.info.Name, ErrDeviceLost)
	}
	var err error
	if !d.lost.Load() {
		err = d.check("vkDeviceWaitIdle", int(vulkan.DeviceWaitIdle(d.handle)))
		if err == nil && d.cacheDir != "" && len(d.pipes) > 0 {
			if unkept := d.saveCache(); unkept != nil {
				d.note("compiled shaders are not kept, the next start compiles them again: %v", unkept)
			}
		}
	}
	for _, b := range d.staging {
		if b != nil {
			b.Free()
		}
	}
	if d.checks != nil {
		d.checks.report.Free()
	}
	for _, f := range d.fences {
		vulkan.DestroyFence(d.handle, f, nil)
	}
	for _, s := range d.spare {
		vulkan.DestroyCommandPool(d.handle, s.pool, nil)
	}
	for _, p := range d.pipes {
		vulkan.DestroyPipeline(d.handle, p.handle, nil)
		vulkan.DestroyPipelineLayout(d.handle, p.layout, nil)
	}
	for _, l := range d.layouts {
		vulkan.DestroyDescriptorSetLayout(d.handle, l, nil)
	}
	vulkan.DestroyPipelineCache(d.handle, d.cache, nil)
	vulkan.DestroyDevice(d.handle, nil)
	C.shim_free(d.shim)
	return err
}
