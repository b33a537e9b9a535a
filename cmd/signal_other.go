//go:build !unix

package cmd

import "os"

var askSignals []os.Signal
