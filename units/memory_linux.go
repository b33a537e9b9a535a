package units

import "golang.org/x/sys/unix"

// largePages asks for large pages under b, which has not been written yet. A system without them leaves it as it is.
func largePages(b []uint8) { _ = unix.Madvise(b, unix.MADV_HUGEPAGE) }
