//go:build !(linux && (amd64 || arm64) && cgo && !novulkan)

package vk

import "time"

const errStub = Unavailable("this program is built without Vulkan, which takes cgo on 64-bit Linux and no tag novulkan")

// Built says whether this program can use Vulkan at all.
const Built = false

// Device cannot be opened in this build, so nothing below is ever called.
type Device struct{}

func List() ([]DeviceInfo, error)                      { return nil, errStub }
func FreeMemory(int) (int64, bool)                     { return 0, false }
func Refused() []error                                 { return nil }
func Open(Options) (*Device, error)                    { return nil, errStub }
func (d *Device) Info() *DeviceInfo                    { return nil }
func (d *Device) Close() error                         { return errStub }
func (d *Device) NewCommands() *Commands               { return nil }
func (d *Device) Run(c *Commands) error                { return errStub }
func (d *Device) Submit(c *Commands) (*Pending, error) { return nil, errStub }
func (d *Device) SubmitAround(c *Commands, part int, before, after *Commands, first ...*Commands) (*Pending, error) {
	return nil, errStub
}
func (d *Device) MemoryUsed() (used int64) { return 0 }

func (d *Device) NewBuffer(bytes int64, kind Kind) (*Buffer, error) { return nil, errStub }
func (d *Device) NewPipeline(spec PipelineSpec) (*Pipeline, error)  { return nil, errStub }

type Buffer struct{}

func (b *Buffer) Size() int64                     { return 0 }
func (b *Buffer) Bytes() []byte                   { return nil }
func (b *Buffer) Write(off int64, p []byte) error { return errStub }
func (b *Buffer) Read(off int64, p []byte) error  { return errStub }
func (b *Buffer) Free()                           {}

type Pipeline struct{}

type Pending struct{}

func (p *Pending) Wait() error { return errStub }

type Commands struct{}

func (c *Commands) Dispatch(p *Pipeline, push []byte, x, y, z int, bindings ...Binding) {}
func (c *Commands) Barrier()                                                            {}
func (c *Commands) CopyBarrier()                                                        {}
func (c *Commands) Copy(dst *Buffer, dstOff int64, src *Buffer, srcOff, n int64)        {}
func (c *Commands) Cut()                                                                {}
func (c *Commands) Timestamp()                                                          {}
func (c *Commands) End() error                                                          { return errStub }
func (c *Commands) Times() ([]time.Duration, error)                                     { return nil, errStub }
func (c *Commands) Free()                                                               {}
