package cmd

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"

	"dchain/units"
	"dchain/units/vk"
)

// backendFlags choose what a process computes with.
type backendFlags struct {
	backend string
	device  int
}

// firstDevice is --device where it is not given: the first that fits.
const firstDevice = -1

const vulkanPrefix = "vulkan-"

var backendNames = []string{"auto", "vulkan", vulkanPrefix + string(units.VulkanCoopMat),
	vulkanPrefix + string(units.VulkanDP4A), vulkanPrefix + string(units.VulkanLUT), "cpu"}

func (f *backendFlags) register(fl *pflag.FlagSet) {
	fl.StringVar(&f.backend, "backend", "auto", "what computes: "+strings.Join(backendNames, ", ")+" (auto: a GPU if there is one)")
	fl.IntVar(&f.device, "device", firstDevice, "the `N`th Vulkan device, from 0, as probe lists them, for spawned stages too (default: the first GPU)")
}

func (f *backendFlags) check() error {
	if !slices.Contains(backendNames, f.backend) {
		return usageError("--backend: unknown backend %q (%s)", clip(f.backend), strings.Join(backendNames, ", "))
	}
	if f.device < firstDevice {
		return usageError("--device: %d is negative", f.device)
	}
	if f.device != firstDevice && f.backend == "cpu" {
		return usageError("--device goes with a Vulkan backend, not with --backend cpu")
	}
	return nil
}

// backend is one way to compute: a set of processor kernels, or a tier of a Vulkan device.
type backend struct {
	name   string // "avx2", "vulkan-dp4a"
	open   func() (units.Device, error)
	memory func() int64 // that weights and caches may take now, in bytes; 0 where the system does not tell
	gpu    bool         // it leaves the processor's cores free
	alike  []int        // the Vulkan devices of its kind, itself first
}

func cpuBackend(kernels string, o units.CPUOptions) backend {
	o.Kernels = kernels
	return backend{kernels, func() (units.Device, error) { return units.NewCPU(o) }, freeMemory, false, nil}
}

// vulkanBackend is a tier of a device; what its cache of shaders lacks goes to note.
func vulkanBackend(tier units.VulkanTier, info *vk.DeviceInfo, o units.CPUOptions, note func(text string)) backend {
	v := units.VulkanOptions{Device: info.Index, Tier: tier, AuditEvery: o.AuditEvery, Threads: o.Threads, Note: note}
	return backend{vulkanPrefix + string(tier), func() (units.Device, error) { return units.NewVulkan(v) }, func() int64 { return freeOf(info) }, !info.CPU(), nil}
}

// freeOf is what a device can hold now.
func freeOf(info *vk.DeviceInfo) int64 {
	own := info.Memory
	if left, known := vk.FreeMemory(info.Index); known {
		own = left
	}
	return vulkanMemory(info, own, freeMemory())
}

// vulkanMemory is what a device can hold: what is left of its own memory, all of it where the driver does not tell. One without
// its own shares the machine's, of which free bytes are left. A device that is full has a byte: 0 would say that it is not known.
func vulkanMemory(info *vk.DeviceInfo, own, free int64) int64 {
	own = max(own, 1)
	if shared := info.CPU() || info.Type == "integrated"; shared && free > 0 {
		return min(own, free)
	}
	return own
}

// Cores that a machine must have so that one of them may look for activations, and how long it does: the time between two of
// a session that decodes.
const (
	pollCores = 4
	pollTime  = 5 * time.Millisecond
)

// pollWhile says how long the links of a process look for activations before they sleep: that is only worth it while the process
// computes on a GPU. It is nil where it never is, or no core can be spared.
func pollWhile(gpu *atomic.Bool) func() time.Duration {
	if !gpu.Load() || runtime.GOMAXPROCS(0) < pollCores {
		return nil
	}
	return func() time.Duration {
		if gpu.Load() {
			return pollTime
		}
		return 0
	}
}

// fits says why so much memory of a device is not enough for what is to be loaded, nil if it is; alike is backend.alike.
type fits func(have int64, device string, alike []int) error

// anyMemory is fits where nothing is to be loaded.
func anyMemory(int64, string, []int) error { return nil }

// backends is what the flags allow, best first. With auto that is the tiers of a GPU, if there is one, and the processor;
// a software renderer, which computes on the processor too, is used only by name. Why no GPU is used is said once, but not by a
// program that is built without Vulkan. The processor never stands in for what was asked for by name.
func (a *app) backends(f *backendFlags, o units.CPUOptions, fits fits) ([]backend, error) {
	var all []backend
	if f.backend != "cpu" {
		info, err := f.vulkanDevice()
		var alike []int
		if err == nil {
			alike = f.alike(info)
			err = fits(freeOf(info), info.Name, alike)
		}
		switch {
		case err == nil:
			for _, tier := range units.VulkanTiers(info) {
				b := vulkanBackend(tier, info, o, a.ui.noteOnce)
				b.alike = alike
				if f.backend == "auto" || f.backend == "vulkan" || f.backend == b.name {
					all = append(all, b)
				}
			}
			if len(all) == 0 {
				return nil, fmt.Errorf("--backend %s: %s has no such units, it has %v", f.backend, info.Name, units.VulkanTiers(info))
			}
		case !f.unnamed():
			return nil, err
		case vk.Built:
			a.ui.noteOnce(fmt.Sprintf("GPUs are not used: %v", err))
		}
	}
	if f.backend == "auto" || f.backend == "cpu" {
		for _, kernels := range units.CPUKernels() {
			all = append(all, cpuBackend(kernels, o))
		}
	}
	return all, nil
}

// unnamed says that nobody has asked for a GPU by name, so that the processor may take its place.
func (f *backendFlags) unnamed() bool { return f.backend == "auto" && f.device == firstDevice }

// standIn says whether the processor takes the place of a GPU after an error of loading.
func (f *backendFlags) standIn(err error) bool {
	return f.unnamed() && (errors.Is(err, vk.ErrOutOfMemory) || errors.Is(err, vk.ErrDeviceLost))
}

// vulkanDevice is the device that the flags name, else the first GPU, else the first of any kind if Vulkan is asked for.
func (f *backendFlags) vulkanDevice() (*vk.DeviceInfo, error) {
	devices, err := vk.List()
	switch {
	case err != nil && f.unnamed():
		return nil, err
	case err != nil:
		return nil, f.noVulkan(err)
	}
	if f.device != firstDevice {
		if f.device >= len(devices) {
			return nil, usageError("--device: there is no Vulkan device %d, the last is %d", f.device, len(devices)-1).hint("dchain probe lists them")
		}
		return &devices[f.device], nil
	}
	for i := range devices {
		if !devices[i].CPU() {
			return &devices[i], nil
		}
	}
	if f.backend == "auto" {
		return nil, errors.Join(append([]error{fmt.Errorf("there is none beside the software renderer %s", devices[0].Name)}, vk.Refused()...)...)
	}
	return &devices[0], nil
}

// driverVars are the variables that name drivers to the Vulkan library, instead of those that are installed; the first that is set
// counts.
var driverVars = []string{"VK_DRIVER_FILES", "VK_ICD_FILENAMES"}

// noVulkan is the error of a command that was asked for a GPU where the Vulkan library has none to offer.
func (f *backendFlags) noVulkan(err error) error {
	e := &exitError{code: exitFailure, err: fmt.Errorf("looking for Vulkan devices: %w", err)}
	var call *vk.Error // the library is there, what fails is a driver
	if errors.As(err, &call) {
		for _, name := range driverVars {
			if value := os.Getenv(name); value != "" {
				e.hint("%s=%s names the drivers: unset it to take those that are installed", name, value)
				break
			}
		}
	}
	if f.device != firstDevice {
		return e.hint("--backend cpu, without --device, computes on the processor")
	}
	return e.hint("--backend cpu computes on the processor")
}

// alike are the devices over which the stages of --spawn spread: those of the same name, or the one that --device names.
func (f *backendFlags) alike(info *vk.DeviceInfo) []int {
	all := []int{info.Index}
	devices, err := vk.List()
	if err != nil || f.device != firstDevice || info.CPU() {
		return all
	}
	for i := range devices {
		if d := &devices[i]; d.Index != info.Index && d.Name == info.Name {
			all = append(all, d.Index)
		}
	}
	return all
}

// gated is the backend of this name, which a parent process has gated.
func (a *app) gated(f *backendFlags, name string, o units.CPUOptions) (backend, error) {
	tier, ok := strings.CutPrefix(name, vulkanPrefix)
	if !ok {
		return cpuBackend(name, o), nil
	}
	info, err := (&backendFlags{backend: name, device: f.device}).vulkanDevice()
	if err != nil {
		return backend{}, err
	}
	return vulkanBackend(units.VulkanTier(tier), info, o, a.ui.noteOnce), nil
}
