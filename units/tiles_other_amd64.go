//go:build !linux

package units

// allowTiles is false: the registers of AMX are used on Linux only.
func allowTiles() bool { return false }
