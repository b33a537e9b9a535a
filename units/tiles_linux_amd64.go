package units

import (
	"sync"

	"golang.org/x/sys/unix"
)

const (
	archReqXCompPerm = 0x1023
	xfeatureTileData = 18
)

// allowTiles asks the system, once, for the registers of AMX, which a process may use on request only; false if it refuses.
var allowTiles = sync.OnceValue(func() bool {
	_, _, errno := unix.Syscall(unix.SYS_ARCH_PRCTL, archReqXCompPerm, xfeatureTileData, 0)
	return errno == 0
})
