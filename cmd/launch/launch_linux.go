package launch

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Files that a child is given beside its standard streams.
const (
	startedFile = 3 // a pipe: one byte says that the program has begun
	programFile = 4 // the program itself, which must have a known number for the child to be executed from
)

// passedOn are the signals that a supervisor leaves to its child. A terminal sends its own to both. A hangup that the supervisor
// was started to ignore (nohup) is left alone, so that the child ignores it too.
func passedOn() []os.Signal {
	all := []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGUSR1}
	if !signal.Ignored(syscall.SIGHUP) {
		all = append(all, syscall.SIGHUP)
	}
	return all
}

// Run executes program, an ELF file, with args and the standard streams of this process, and waits until it ends. It dies
// with this process. An error means that it never began, and has done nothing.
func Run(program string, args []string) (Ended, error) {
	file, err := memoryFile(program)
	if err != nil {
		return Ended{}, err
	}
	defer file.Close()
	began, tell, err := os.Pipe()
	if err != nil {
		return Ended{}, err
	}
	defer began.Close()
	cmd := exec.Command(fmt.Sprintf("/proc/self/fd/%d", programFile), args...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), supervisedVar+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.ExtraFiles = []*os.File{startedFile - 3: tell, programFile - 3: file}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}

	signals := make(chan os.Signal, 8)
	signal.Notify(signals, passedOn()...)
	defer signal.Stop(signals)
	// The kernel takes the end of the thread that started a child for the end of its parent.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err = cmd.Start()
	tell.Close()
	if err != nil {
		return Ended{}, explain(err)
	}
	over := make(chan struct{})
	defer close(over)
	go func() {
		for {
			select {
			case s := <-signals:
				cmd.Process.Signal(s) // an error means that the child is gone, which Wait tells
			case <-over:
				return
			}
		}
	}()
	n, _ := io.ReadFull(began, make([]byte, 1)) // the end of the file where the child ends first
	err = cmd.Wait()
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	switch {
	case !ok: // Wait itself failed
		return Ended{}, err
	case n == 0:
		return Ended{}, fmt.Errorf("it ended before it began: %v (it needs the GNU C library 2.34 or newer)", cmd.ProcessState)
	case status.Signaled():
		s := status.Signal()
		crash := s == syscall.SIGSEGV || s == syscall.SIGBUS || s == syscall.SIGABRT || s == syscall.SIGILL || s == syscall.SIGFPE
		return Ended{128 + int(s), s.String(), crash}, nil
	}
	return Ended{Code: status.ExitStatus()}, nil
}

// memoryFile makes a file in memory that can be executed.
func memoryFile(contents string) (*os.File, error) {
	const flags = unix.MFD_CLOEXEC
	fd, err := unix.MemfdCreate("dchain", flags|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // a kernel before 6.3, where all memory files can be
		fd, err = unix.MemfdCreate("dchain", flags)
	}
	if err != nil {
		return nil, fmt.Errorf("making a file in memory that can be executed: %w", err)
	}
	file := os.NewFile(uintptr(fd), "memory file")
	if _, err := file.WriteString(contents); err != nil {
		file.Close()
		return nil, fmt.Errorf("writing the program to memory: %w", err)
	}
	return file, nil
}

// explain says what a failure to execute means: the kernel's words name a file that exists.
func explain(err error) error {
	if !errors.Is(err, syscall.ENOENT) {
		return err
	}
	if _, noProc := os.Stat("/proc/self/fd"); noProc != nil {
		return fmt.Errorf("there is no /proc: %w", syscall.ENOENT)
	}
	return fmt.Errorf("there is no GNU C library: %w", syscall.ENOENT)
}

// Began tells the supervisor of this process, if it has one, that the program runs.
func Began() {
	if os.Getenv(supervisedVar) == "" {
		return
	}
	os.Unsetenv(supervisedVar) // children of this process have none
	if target, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", startedFile)); err != nil || !strings.HasPrefix(target, "pipe:") {
		return // the variable was not set by Run
	}
	started := os.NewFile(startedFile, "supervisor")
	started.Write([]byte{1})
	started.Close()
	syscall.Close(programFile)
}
