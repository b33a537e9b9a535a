package units

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"dchain/luts"
	"dchain/shaders"
	"dchain/units/vk"
)

// VulkanTier is the kind of unit that a Vulkan device multiplies with.
type VulkanTier string

const (
	VulkanCoopMat VulkanTier = "coopmat" // cooperative matrices for many rows, dot products for few
	VulkanDP4A    VulkanTier = "dp4a"    // integer dot products of four int8
	VulkanLUT     VulkanTier = "lut"     // products from the committed table
)

// VulkanTiers lists the tiers that a device has, best first.
func VulkanTiers(info *vk.DeviceInfo) []VulkanTier {
	var tiers []VulkanTier
	if hasMatrices(info) && info.DotProduct {
		tiers = append(tiers, VulkanCoopMat)
	}
	if info.DotProduct {
		tiers = append(tiers, VulkanDP4A)
	}
	return append(tiers, VulkanLUT)
}

// VulkanOptions configures a Vulkan device; the zero value is the default.
type VulkanOptions struct {
	// Device is the index of vk.List.
	Device int
	// Tier is the kind of unit; "" is the best that the device has.
	Tier VulkanTier
	// AuditEvery recomputes one dispatch of every AuditEvery-th Run with the plain reference and compares; 0 is never. Of runs of one
	// row every few audits also compare what chained dispatches put out with what barriers between them give.
	AuditEvery int
	// Threads is the number of cores that quantise weights; 0 is as for the CPU device.
	Threads int
	// CacheDir is where compiled pipelines are kept; "" is a folder of the user's cache, "-" nowhere.
	CacheDir string
	// Note, which may be nil, is told what is wrong with that folder, or with the device where it computes all the same.
	Note func(text string)
}

// vulkanDevice keeps weights, caches and activations on a Vulkan device and executes programs as recorded command
// buffers.
type vulkanDevice struct {
	vk         *vk.Device
	info       *vk.DeviceInfo
	tier       VulkanTier
	auditEvery int
	// plain is for a software renderer, which takes minutes to compile what is unrolled far: an invocation computes little.
	plain bool
	// fewRows is the largest batch for which a linear operation reads the weights once with its sums in registers.
	fewRows  int
	matrix   bool     // cooperative matrices: the tier coopmat
	tiled    bool     // matrices by dot products: for tests, on devices without
	steps    []int    // sizes of batch, beyond those of every gate, from which on linear operations go other ways; see batchSteps
	kern     *kernels // quantises weights
	pool     *pool
	tables   *vk.Buffer // luts, in the order of numerics.glsl
	products *vk.Buffer // luts.MulBin; nil but for the tier LUT
	compiled atomic.Uint64
	verdict  verdict
	closed   atomic.Bool

	unchained atomic.Bool // chained dispatches have stalled: steps are recorded with barriers
	note      func(text string)

	mu        sync.Mutex
	pipelines map[string]func() (*vk.Pipeline, error)
	uses      func(shader string) // NoteShaders
	buffers   []*vk.Buffer        // everything to free with the device
	runs      []*vulkanExecutable
}

// NewVulkan opens a Vulkan device. Without a library, a driver or such a device the error wraps vk.ErrUnavailable.
func NewVulkan(o VulkanOptions) (Device, error) {
	kern, err := selectKernels("")
	if err != nil {
		return nil, err
	}
	cpu := CPUOptions{Threads: o.Threads, AuditEvery: o.AuditEvery}
	if err := cpu.validate(); err != nil {
		return nil, err
	}
	if o.CacheDir == "" {
		if dir, err := os.UserCacheDir(); err == nil {
			o.CacheDir = filepath.Join(dir, "dchain", "vulkan")
		}
	} else if o.CacheDir == "-" {
		o.CacheDir = ""
	}
	dev, err := vk.Open(vk.Options{Device: o.Device, CacheDir: o.CacheDir, Note: o.Note, Lost: func() { Metrics.Lost.Add(1) }})
	if err != nil {
		return nil, err
	}
	threads := o.Threads
	if threads == 0 {
		threads = DefaultThreads()
	}
	d := &vulkanDevice{vk: dev, info: dev.Info(), tier: o.Tier, auditEvery: o.AuditEvery, kern: kern, pool: newPool(threads), note: o.Note,
		pipelines: map[string]func() (*vk.Pipeline, error){}}
	if err := d.start(); err != nil {
		d.Close()
		return nil, fmt.Errorf("opening %s: %w", d.info.Name, err)
	}
	return d, nil
}

// minSubgroup is as many rows as experts_linear.comp takes at a time, each of which an invocation of a subgroup finishes.
const minSubgroup = 4

// start checks the device's limits and uploads the tables.
func (d *vulkanDevice) start() error {
	tiers := VulkanTiers(d.info)
	if d.tier == "" {
		d.tier = tiers[0]
	}
	switch {
	case !slices.Contains(tiers, d.tier):
		return vk.Unavailable(fmt.Sprintf("it has no units of tier %q, it has %v", d.tier, tiers))
	case !d.info.SubgroupArithmetic:
		return vk.Unavailable("it has no reductions over subgroups")
	case d.info.Subgroup < minSubgroup:
		return vk.Unavailable(fmt.Sprintf("subgroups of %d invocations, want %d", d.info.Subgroup, minSubgroup))
	case d.info.MaxShared < 32<<10 || d.info.MaxInvocations < 256:
		return vk.Unavailable(fmt.Sprintf("workgroups of %d invocations with %d bytes, want 256 with 32,768", d.info.MaxInvocations, d.info.MaxShared))
	}
	d.plain, d.fewRows = d.info.CPU(), min(8, d.info.Subgroup)
	if d.plain {
		d.fewRows = 1
	}
	var err error
	if d.tables, err = d.upload(slices.Concat(luts.Exp2Bin, luts.RecipBin, luts.RsqrtBin, luts.GaussBin)); err != nil {
		return err
	}
	if d.tier == VulkanCoopMat {
		d.useMatrices()
	}
	if d.tier == VulkanLUT {
		d.products, err = d.upload(luts.MulBin)
	}
	return err
}

// units is what the shaders of dot products are named by.
func (d *vulkanDevice) units() string {
	if d.tier == VulkanLUT {
		return string(VulkanLUT)
	}
	return string(VulkanDP4A)
}

func (d *vulkanDevice) Name() string { return fmt.Sprintf("vulkan (%s, %s)", d.info.Name, d.tier) }

// BatchRows is the number of rows of a step beyond which more bring little.
func (d *vulkanDevice) BatchRows() int {
	if d.plain {
		return 128
	}
	return 1024
}

func (d *vulkanDevice) Close() error {
	if d.closed.Swap(true) {
		return errors.New("closing a Vulkan device: closed already")
	}
	for _, e := range d.runs {
		e.drop()
	}
	for _, b := range d.buffers {
		b.Free()
	}
	d.runs, d.buffers = nil, nil
	d.pool.close()
	return d.vk.Close()
}

// buffer allocates memory that lives as long as the device, or until free.
func (d *vulkanDevice) buffer(bytes int64, kind vk.Kind) (*vk.Buffer, error) {
	b, err := d.vk.NewBuffer(bytes, kind)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.buffers = append(d.buffers, b)
	return b, nil
}

// free releases a buffer before the device is closed.
func (d *vulkanDevice) free(b *vk.Buffer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if i := slices.Index(d.buffers, b); i >= 0 {
		d.buffers = slices.Delete(d.buffers, i, i+1)
		b.Free()
	}
}

// upload is a local buffer with the given contents.
func (d *vulkanDevice) upload(contents []byte) (*vk.Buffer, error) {
	b, err := d.buffer(int64(len(contents)), vk.Local)
	if err != nil {
		return nil, err
	}
	if err := b.Write(0, contents); err != nil {
		d.free(b)
		return nil, err
	}
	return b, nil
}

// vulkanVector is a parameter on the device, and on the host for audits.
type vulkanVector struct {
	dev *vulkanDevice
	v   []float32
	buf *vk.Buffer
}

func (v *vulkanVector) Len() int { return len(v.v) }

func (v *vulkanVector) Close() error {
	v.dev.free(v.buf)
	v.v, v.buf = nil, nil
	return nil
}

func (v *vulkanVector) owner() Device { return v.dev }

func (v *vulkanVector) values() []float32 { return v.v }

func (d *vulkanDevice) NewVector(name string, v []float32) (Vector, error) {
	out, err := vectorValues(name, v)
	if err != nil {
		return nil, err
	}
	h := &vulkanVector{dev: d, v: out}
	if len(out) > 0 {
		h.buf, err = d.upload(floatBytes(nil, out))
	}
	if err != nil {
		return nil, fmt.Errorf("loading %q: %w", name, err)
	}
	return h, nil
}

// floatBytes appends values as the device stores them.
func floatBytes(b []byte, v []float32) []byte {
	b = slices.Grow(b, 4*len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

// pipeline is the shader of this name with specialisation constants; each combination is compiled once, several at a time: a
// driver may take half a second for one.
func (d *vulkanDevice) pipeline(s shader, bindings, pushBytes int) (*vk.Pipeline, error) {
	key := s.key()
	d.mu.Lock()
	if d.uses != nil {
		d.uses(key)
	}
	compile := d.pipelines[key]
	if compile == nil {
		compile = sync.OnceValues(func() (*vk.Pipeline, error) {
			code, err := shaders.Code(s.name)
			if err != nil {
				return nil, err
			}
			return d.vk.NewPipeline(vk.PipelineSpec{Name: s.name, Code: code, Bindings: bindings, PushBytes: pushBytes,
				Subgroup: s.subgroup, Constants: s.constants})
		})
		d.pipelines[key] = compile
	}
	d.mu.Unlock()
	p, err := compile()
	if err != nil { // another time there may be memory for it
		d.mu.Lock()
		delete(d.pipelines, key)
		d.mu.Unlock()
	}
	return p, err
}

// NoteShaders has use called with the name, subgroup size and specialisation constants of every shader that is recorded from now on,
// also of those that are there already; nil ends that. It is for tests that ask what gates leave out.
func (d *vulkanDevice) NoteShaders(use func(shader string)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.uses = use
}
