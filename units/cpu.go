package units

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
)

// CPUOptions configures the CPU device; the zero value is the default.
type CPUOptions struct {
	// Threads is the number of cores used, the caller's included; 0 means the physical cores of this machine, at most
	// GOMAXPROCS.
	Threads int
	// AuditEvery recomputes one operation of every AuditEvery-th Run with the plain reference and compares; 0 is never.
	AuditEvery int
	// Kernels is one of CPUKernels; "" means what the environment variable DCHAIN_CPU names, else the fastest.
	Kernels string
}

const maxThreads = 1024

func (o CPUOptions) validate() error {
	if o.Threads < 0 || o.Threads > maxThreads {
		return fmt.Errorf("%d threads: want 1 to %d, or 0 for all cores", o.Threads, maxThreads)
	}
	if o.AuditEvery < 0 {
		return fmt.Errorf("audit every %d runs: want a positive number, or 0 for never", o.AuditEvery)
	}
	return nil
}

// cpuDevice is the reference device: it interprets programs.
type cpuDevice struct {
	kern       *kernels
	threads    int
	auditEvery int
	pool       *pool
	memory     weightMemory
	compiled   atomic.Uint64 // executables so far: the seed of their audits
	verdict    verdict
	closed     atomic.Bool
}

// NewCPU starts the CPU device with the fastest kernels this processor runs, or those that o or the environment variable
// DCHAIN_CPU names (generic, avx2, avxvnni, avx512vnni, amx, neon, sdot); a name that is unknown or not available is an error.
func NewCPU(o CPUOptions) (Device, error) {
	name := o.Kernels
	if name == "" {
		name = os.Getenv("DCHAIN_CPU")
	}
	kern, err := selectKernels(name)
	if err != nil {
		return nil, err
	}
	d, err := newCPU(o, kern)
	if err != nil {
		return nil, err
	}
	return d, nil
}

func newCPU(o CPUOptions, kern *kernels) (*cpuDevice, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	threads := o.Threads
	if threads == 0 {
		threads = DefaultThreads()
	}
	return &cpuDevice{kern: kern, threads: threads, auditEvery: o.AuditEvery, pool: newPool(threads)}, nil
}

// CPUKernels lists the kernels this processor runs, best first; those that DCHAIN_CPU names alone, where it is set.
func CPUKernels() []string {
	if name := os.Getenv("DCHAIN_CPU"); name != "" {
		return []string{name}
	}
	var names []string
	for _, k := range kernelSets() {
		names = append(names, k.name)
	}
	return names
}

// DefaultThreads is what 0 threads mean: the physical cores of this machine, at most GOMAXPROCS.
func DefaultThreads() int { return min(physicalCores(), givenProcs) }

// physicalCores counts the cores of this machine, not their hardware threads, as far as the system tells.
func physicalCores() int {
	lists, _ := filepath.Glob("/sys/devices/system/cpu/cpu[0-9]*/topology/thread_siblings_list")
	seen := map[string]bool{}
	for _, path := range lists {
		b, err := os.ReadFile(path)
		if err != nil {
			return runtime.NumCPU()
		}
		seen[string(b)] = true
	}
	if len(seen) == 0 {
		return runtime.NumCPU()
	}
	return min(len(seen), runtime.NumCPU())
}

func (d *cpuDevice) Name() string {
	if d.threads == 1 {
		return fmt.Sprintf("cpu (%s, 1 thread)", d.kern.name)
	}
	return fmt.Sprintf("cpu (%s, %d threads)", d.kern.name, d.threads)
}

func (d *cpuDevice) Close() error {
	if d.closed.Swap(true) {
		return errors.New("closing the cpu device: closed already")
	}
	d.pool.close()
	return nil
}

// cpuVector is a parameter in memory.
type cpuVector struct {
	dev *cpuDevice
	v   []float32
}

func (v *cpuVector) Len() int { return len(v.v) }

func (v *cpuVector) Close() error {
	v.v = nil
	return nil
}

func (v *cpuVector) owner() Device { return v.dev }

func (v *cpuVector) values() []float32 { return v.v }

func (d *cpuDevice) NewVector(name string, v []float32) (Vector, error) {
	out, err := vectorValues(name, v)
	if err != nil {
		return nil, err
	}
	return &cpuVector{d, out}, nil
}
