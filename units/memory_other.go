//go:build !linux

package units

// largePages does nothing: the system decides.
func largePages([]uint8) {}
