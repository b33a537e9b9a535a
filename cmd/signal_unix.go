//go:build unix

package cmd

import (
	"os"
	"os/signal"
	"syscall"
)

// askSignals ask a stage for its counters.
var askSignals = []os.Signal{syscall.SIGUSR1}

// endSignals end a command in good order. A hangup does, too, unless the process was started to outlive its terminal (nohup).
func endSignals() []os.Signal {
	all := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		all = append(all, syscall.SIGHUP)
	}
	return all
}
