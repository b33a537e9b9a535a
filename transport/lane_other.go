//go:build !linux

package transport

const lanes = false
