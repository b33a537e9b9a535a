//go:build !unix

package cmd

import "syscall"

func ownGroup() *syscall.SysProcAttr { return nil }
