package stage

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// mapFile maps the first n bytes of a file, read only. The pages are those of the system's cache, shared with every
// process that maps the file, and large ones where the file system has them.
func mapFile(f *os.File, n int64) ([]byte, error) {
	return unix.Mmap(int(f.Fd()), 0, int(n), unix.PROT_READ, unix.MAP_SHARED)
}

func unmapFile(b []byte) error { return unix.Munmap(b) }

// populate has the system read and map part of a mapping, which begins at a page. What it cannot read is an error here and
// would be a fault at the first touch. A system that does not know the request reads at the first touch.
func populate(b []byte) error {
	err := unix.Madvise(b, unix.MADV_POPULATE_READ)
	if errors.Is(err, unix.EINVAL) {
		return nil
	}
	return err
}
