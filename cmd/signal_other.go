//go:build !unix

package cmd

import (
	"os"
	"syscall"
)

var askSignals []os.Signal

// endSignals end a command in good order. A closed console comes as SIGTERM.
func endSignals() []os.Signal { return []os.Signal{os.Interrupt, syscall.SIGTERM} }
