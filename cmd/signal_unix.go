//go:build unix

package cmd

import (
	"os"
	"syscall"
)

// askSignals ask a stage for its counters.
var askSignals = []os.Signal{syscall.SIGUSR1}
