//go:build !linux

package stage

import (
	"io"
	"os"
	"unsafe"
)

// mapFile reads the first n bytes of a file.
func mapFile(f *os.File, n int64) ([]byte, error) {
	room := make([]byte, n+packedAlign)
	start := -int64(uintptr(unsafe.Pointer(unsafe.SliceData(room)))) & (packedAlign - 1)
	b := room[start : start+n]
	_, err := io.ReadFull(io.NewSectionReader(f, 0, n), b)
	return b, err
}

func unmapFile([]byte) error { return nil }

func populate([]byte) error { return nil }
