//go:build unix

package cmd

import "syscall"

// ownGroup keeps a terminal's interrupt from reaching a child.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
