//go:build !(amd64 || arm64) || purego

package units

// archKernels lists the assembly tables of this processor: none here.
func archKernels() []*kernels { return nil }
