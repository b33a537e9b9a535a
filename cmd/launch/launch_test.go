//go:build linux

package launch

import (
	"bytes"
	"debug/elf"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The test's own program plays both parts: as supervisor it runs the program that supervisorVar names, as the child it does
// what childVar says.
const (
	supervisorVar = "LAUNCH_TEST_PROGRAM"
	childVar      = "LAUNCH_TEST_CHILD"
)

func TestMain(m *testing.M) {
	if program := os.Getenv(supervisorVar); program != "" {
		os.Unsetenv(supervisorVar)
		supervise(program)
	}
	if act := os.Getenv(childVar); act != "" {
		play(act)
	}
	os.Exit(m.Run())
}

func supervise(program string) {
	contents, err := os.ReadFile(program)
	if err != nil {
		panic(err)
	}
	ended, err := Run(string(contents), os.Args[1:])
	if err != nil {
		os.Stderr.WriteString("not run: " + err.Error())
		os.Exit(99)
	}
	os.Stderr.WriteString(ended.Signal)
	if ended.Crash {
		os.Stderr.WriteString(", a crash")
	}
	os.Exit(ended.Code)
}

func play(act string) {
	if act == "never begins" {
		os.Exit(7)
	}
	Began()
	if os.Getenv(supervisedVar) != "" {
		panic("children of the child would have a supervisor")
	}
	if link, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(programFile)); err == nil && strings.Contains(link, "memfd") {
		panic("the file of the program is still open")
	}
	switch act {
	case "echo":
		var in bytes.Buffer
		in.ReadFrom(os.Stdin)
		os.Stdout.WriteString(strings.Join(os.Args[1:], "|") + ":" + in.String())
		os.Exit(5)
	case "wait":
		os.Stdout.WriteString(strconv.Itoa(os.Getpid()) + "\n")
		time.Sleep(time.Minute)
	case "wait for USR1":
		asked := make(chan os.Signal, 1)
		signal.Notify(asked, syscall.SIGUSR1)
		os.Stdout.WriteString(strconv.Itoa(os.Getpid()) + "\n")
		<-asked
		os.Exit(8)
	case "crash":
		syscall.Kill(os.Getpid(), syscall.SIGBUS)
		time.Sleep(time.Minute)
	}
	os.Exit(6)
}

// supervisor is this program as one of program, whose child does act.
func supervisor(t *testing.T, program, act string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(self(t), args...)
	cmd.Env = append(os.Environ(), supervisorVar+"="+program, childVar+"="+act)
	return cmd
}

func self(t *testing.T) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return exe
}

func TestRunPassesEverythingOn(t *testing.T) {
	cmd := supervisor(t, self(t), "echo", "one", "two three")
	cmd.Stdin = strings.NewReader("input")
	out, err := cmd.Output()
	if string(out) != "one|two three:input" || cmd.ProcessState.ExitCode() != 5 {
		t.Errorf("%q, %v", out, err)
	}
}

// A child that does not run is an error, and not an exit code.
func TestRunFailsBeforeItBegins(t *testing.T) {
	garbage := filepath.Join(t.TempDir(), "garbage")
	if err := os.WriteFile(garbage, []byte("no program"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, program, act, want string }{
		{"garbage", garbage, "echo", "exec format error"},
		{"no C library", withoutLoader(t), "echo", "there is no GNU C library: no such file or directory"},
		{"ends in the loader", self(t), "never begins", "it ended before it began: exit status 7"},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, err := supervisor(t, c.program, c.act).CombinedOutput()
			if !strings.Contains(string(out), "not run: ") || !strings.Contains(string(out), c.want) {
				t.Errorf("%q, %v, want %q", out, err, c.want)
			}
		})
	}
}

// withoutLoader is a dynamically linked program whose loader does not exist.
func withoutLoader(t *testing.T) string {
	t.Helper()
	const program = "/bin/true"
	b, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.NewFile(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			b[p.Off+1] = '-'
			name := filepath.Join(t.TempDir(), "program")
			if err := os.WriteFile(name, b, 0o600); err != nil {
				t.Fatal(err)
			}
			return name
		}
	}
	t.Fatalf("%s has no loader", program)
	return ""
}

// waiting starts a supervisor and its child, which does act, to wait in some way, and returns the child's number.
func waiting(t *testing.T, act string) (*exec.Cmd, int, *bytes.Buffer) {
	t.Helper()
	return waitingFor(t, supervisor(t, self(t), act))
}

// waitingFor is waiting for a command that ends in becoming the supervisor.
func waitingFor(t *testing.T, cmd *exec.Cmd) (*exec.Cmd, int, *bytes.Buffer) {
	t.Helper()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	line := make([]byte, 20)
	n, err := stdout.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(line[:n])))
	if err != nil || pid == cmd.Process.Pid {
		t.Fatalf("child %d of %d: %v", pid, cmd.Process.Pid, err)
	}
	return cmd, pid, &stderr
}

func TestSignalsEndTheChild(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		cmd, _, stderr := waiting(t, "wait")
		cmd.Process.Signal(s)
		cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != 128+int(s) || stderr.String() != s.String() {
			t.Errorf("%v: exit code %d, %q", s, code, stderr)
		}
	}
}

// With nohup neither hears of a hangup.
func TestHangupIgnored(t *testing.T) {
	cmd := supervisor(t, self(t), "wait for USR1")
	sh := exec.Command("sh", "-c", `trap "" HUP; exec "$0"`, cmd.Path)
	sh.Env = cmd.Env
	sh, pid, stderr := waitingFor(t, sh)
	syscall.Kill(pid, syscall.SIGHUP)
	sh.Process.Signal(syscall.SIGHUP)
	time.Sleep(200 * time.Millisecond) // the supervisor would pass it on
	sh.Process.Signal(syscall.SIGUSR1)
	sh.Wait()
	if code := sh.ProcessState.ExitCode(); code != 8 {
		t.Errorf("exit code %d, %q", code, stderr)
	}
}

// What a child asks to be signalled, it is.
func TestSignalReachesTheChild(t *testing.T) {
	cmd, _, stderr := waiting(t, "wait for USR1")
	cmd.Process.Signal(syscall.SIGUSR1)
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 8 {
		t.Errorf("exit code %d, %q", code, stderr)
	}
}

func TestChildDiesWithItsSupervisor(t *testing.T) {
	cmd, pid, _ := waiting(t, "wait")
	cmd.Process.Kill()
	cmd.Wait()
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		if time.Now().After(end) {
			t.Fatal("the child lives on")
		}
	}
}

func TestCrash(t *testing.T) {
	cmd := supervisor(t, self(t), "crash")
	out, err := cmd.CombinedOutput()
	// The Go run-time of the child reports a fault itself and ends with code 2, C code leaves the signal.
	if cmd.ProcessState.ExitCode() == 0 || !strings.Contains(string(out), "SIGBUS") && !strings.Contains(string(out), ", a crash") {
		t.Errorf("%q, %v", out, err)
	}
}
