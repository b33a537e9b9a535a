//go:build unix

package units

import "golang.org/x/sys/unix"

// mapMemory returns n zero bytes outside of the Go heap.
func mapMemory(n int) ([]uint8, error) {
	return unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
}

// unmapMemory gives back what mapMemory returned.
func unmapMemory(b []uint8) {
	if err := unix.Munmap(b); err != nil {
		panic("units: giving back memory: " + err.Error()) // it is ours and mapped
	}
}
