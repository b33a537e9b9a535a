//go:build !linux

package transport

import "syscall"

const lanes = false

func readNow(uintptr, []byte) (int, error) { return 0, syscall.EAGAIN }
