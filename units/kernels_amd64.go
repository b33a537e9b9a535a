//go:build amd64 && !purego

package units

// archKernels lists the assembly tables this processor can run, best first.
func archKernels() []*kernels { return nil }
