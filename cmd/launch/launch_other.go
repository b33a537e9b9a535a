//go:build !linux

package launch

import "errors"

// Run cannot be done here; no program for another system than Linux is carried.
func Run(string, []string) (Ended, error) {
	return Ended{}, errors.New("programs are executed from memory on Linux only")
}

// Began has no supervisor to tell.
func Began() {}
