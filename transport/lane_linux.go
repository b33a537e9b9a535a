package transport

import "syscall"

// lanes says that processes of this machine can meet on a local socket that has a name but no file.
const lanes = true

func readNow(fd uintptr, p []byte) (int, error) { return syscall.Read(int(fd), p) }
