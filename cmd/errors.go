package cmd

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"dchain/units"
)

// Exit codes. diff-check gives 1 and 2 the meaning of "different" and "could not run".
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitInterrupted = 130
)

// exitError is an error with an exit code of its own and hints for the operator.
type exitError struct {
	code  int
	err   error
	hints []string
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// usageError is a mistake on the command line.
func usageError(format string, args ...any) *exitError {
	return &exitError{code: exitUsage, err: fmt.Errorf(format, args...)}
}

// flagError says what is wrong with the value of a flag in words of the flag, not of the function that parsed it.
func flagError(err error) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return err
	}
	flag, value := invalid.GetFlag(), clip(invalid.GetValue())
	var want string
	switch kind := flag.Value.Type(); {
	case errors.Is(err, strconv.ErrRange):
		return fmt.Errorf("--%s: %s is out of range", flag.Name, value)
	case strings.HasPrefix(kind, "int"):
		want = "a whole number"
	case strings.HasPrefix(kind, "uint"):
		want = "a whole number from 0"
	case strings.HasPrefix(kind, "float"):
		want = "a number"
	case kind == "duration":
		want = "a duration such as 150us, 2s or 1m30s"
	case kind == "bool":
		want = "true or false"
	default:
		return fmt.Errorf("--%s: %q: %w", flag.Name, value, errors.Unwrap(invalid))
	}
	return fmt.Errorf("--%s: %q is not %s", flag.Name, value, want)
}

// hint adds a line that says what to do.
func (e *exitError) hint(format string, args ...any) *exitError {
	e.hints = append(e.hints, fmt.Sprintf(format, args...))
	return e
}

// exitCode maps an error to the exit code of the process.
func exitCode(err error) int {
	var e *exitError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &e):
		return e.code
	case errors.Is(err, context.Canceled): // the only thing that cancels a command is a signal
		return exitInterrupted
	}
	return exitFailure
}

// hints collects what an error advises: an exitError's own lines, and those of any error in its chain with a Hint method.
func hints(err error) []string {
	var lines []string
	var e *exitError
	if errors.As(err, &e) {
		lines = append(lines, e.hints...)
	}
	var h interface{ Hint() string }
	if errors.As(err, &h) && h.Hint() != "" {
		lines = append(lines, h.Hint())
	}
	var wrong *units.AuditError
	if errors.As(err, &wrong) {
		lines = append(lines, "this machine computes wrong bits that way: take another with --backend (dchain probe compares all)")
	}
	return lines
}
