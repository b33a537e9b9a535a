// Package vk is a thin run-time for Vulkan compute: one device, one queue, storage buffers, pipelines and recorded
// command buffers.
//
// It is built with cgo on 64-bit Linux. Everywhere else, and with the tag novulkan, every entry point answers
// ErrUnavailable. The library is opened at run time: a machine without a loader or a driver gets ErrUnavailable too.
package vk

import (
	"errors"
	"fmt"
)

var (
	// ErrUnavailable is what the errors of List and Open are where there is no Vulkan to use.
	ErrUnavailable = errors.New("no Vulkan is available")
	// ErrDeviceLost is wrapped by errors after which the device can only be closed.
	ErrDeviceLost = errors.New("the Vulkan device is lost")
	// ErrOutOfMemory is wrapped where the device's or the driver's memory does not suffice.
	ErrOutOfMemory = errors.New("out of Vulkan memory")
)

// Unavailable says why there is no Vulkan to use: it is an ErrUnavailable whose text is the reason alone.
type Unavailable string

func (e Unavailable) Error() string        { return string(e) }
func (e Unavailable) Is(target error) bool { return target == ErrUnavailable }

// NoRoom says why something has no place on a device: it is an ErrOutOfMemory whose text is the reason alone.
type NoRoom string

func (e NoRoom) Error() string        { return string(e) }
func (e NoRoom) Is(target error) bool { return target == ErrOutOfMemory }

// Error is a failed call.
type Error struct {
	Call   string // the entry point
	Result int    // a negative VkResult
}

func (e *Error) Error() string {
	if name, ok := resultNames[e.Result]; ok {
		return fmt.Sprintf("%s: %s", e.Call, name)
	}
	return fmt.Sprintf("%s: result %d", e.Call, e.Result)
}

const (
	resultOutOfHostMemory    = -1
	resultOutOfDeviceMemory  = -2
	resultDeviceLost         = -4
	resultMemoryMapFailed    = -5 // no room for a mapping
	resultIncompatibleDriver = -9
	resultTimeout            = 2
)

var resultNames = map[int]string{
	resultOutOfHostMemory: "out of host memory", resultOutOfDeviceMemory: "out of device memory",
	-3: "initialisation failed", resultDeviceLost: "device lost", resultMemoryMapFailed: "memory map failed", -6: "layer not present",
	-7: "extension not present", -8: "feature not present", resultIncompatibleDriver: "no compatible driver",
	-10: "too many objects", -13: "unknown error", resultTimeout: "not finished in time",
}

func (e *Error) Unwrap() error {
	switch e.Result {
	case resultOutOfHostMemory, resultOutOfDeviceMemory, resultMemoryMapFailed:
		return ErrOutOfMemory
	case resultDeviceLost:
		return ErrDeviceLost
	case resultIncompatibleDriver:
		return ErrUnavailable
	}
	return nil
}

// DeviceInfo describes a device: its limits in bytes and counts, and which optional features it has.
type DeviceInfo struct {
	Index      int    // in the order of the loader, those that cannot be used left out; what Options.Device names
	Name       string // as the driver gives it
	Type       string // "discrete", "integrated", "virtual", "cpu" or "other"
	DriverName string
	DriverUUID [16]byte // changes with the driver; with DeviceUUID the key of the pipeline cache
	DeviceUUID [16]byte
	API        [2]int // Vulkan version

	Memory         int64 // of the largest device-local heap
	MaxRange       int64 // of one storage buffer binding, in whole words; no more than MaxAllocation
	MaxAllocation  int64 // of one buffer
	OffsetAlign    int64 // of a binding's offset
	MaxShared      int   // shared memory of a workgroup
	MaxPush        int   // push constants
	MaxBindings    int   // storage buffers of a shader
	MaxInvocations int   // of a workgroup, which may require subgroups of size Subgroup
	MaxGroups      [3]int

	Subgroup           int // size without a request
	MinSubgroup        int // sizes that a pipeline may require
	MaxSubgroup        int
	SubgroupControl    bool // a pipeline may require a size
	SubgroupArithmetic bool // reductions over a subgroup in compute shaders
	SubgroupShuffle    bool

	DotProduct  bool // the packed 4 x 8 bit integer dot product
	RoundRTE    bool // the execution mode RoundingModeRTE for float32
	PreserveNaN bool // the execution mode SignedZeroInfNanPreserve for float32

	// Matrices are the cooperative-matrix shapes for int8 x int8 -> int32 of a subgroup. Others must not be used: they
	// compile, and give wrong results. None are listed without int8 and int64 in shaders.
	Matrices []MatrixShape

	TimestampNanos float64 // one tick; 0 if the queue has no timestamps
}

// MatrixShape is an M x K by K x N cooperative product.
type MatrixShape struct{ M, N, K int }

// CPU says whether the device is a software renderer.
func (i *DeviceInfo) CPU() bool { return i.Type == "cpu" }

// Options selects a device.
type Options struct {
	// Device is the DeviceInfo.Index.
	Device int
	// CacheDir is where compiled pipelines are kept between runs; "" is nowhere.
	CacheDir string
	// Note, which may be nil, is told what is wrong with CacheDir: the device works without.
	Note func(text string)
	// Lost, which may be nil, is called once if the driver gives the device up, by whichever call finds out.
	Lost func()
}

// Kind is the memory a buffer lies in.
type Kind uint8

const (
	Local    Kind = iota // the device's own
	Upload               // written by the host in place, read by the device
	Readback             // written by the device, read by the host in place
)

// Binding is a part of a buffer that a dispatch reads or writes. Size 0 is up to the end. The offset is a multiple of
// DeviceInfo.OffsetAlign, the size at most DeviceInfo.MaxRange.
type Binding struct {
	Buffer       *Buffer
	Offset, Size int64
}

// PipelineSpec is a compute shader and what it is specialised with.
type PipelineSpec struct {
	Name      string // for errors
	Code      []byte // SPIR-V, entry point "main", descriptor set 0 with storage buffers 0..Bindings-1
	Bindings  int
	PushBytes int      // of the push constant block
	Constants []uint32 // specialisation constants 0, 1, ...; bits of a float32 where the shader has one
	Subgroup  int      // required subgroup size; 0 for none
}

// Checked has the shaders of devices that are opened from then on report every index beyond the end of a storage buffer, as far
// as it is bound, or of an array of their own, and whatever runs them fails. It is for tests: on most devices such an access
// goes unnoticed, on others it does not.
var Checked = false
