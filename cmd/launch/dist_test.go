//go:build linux

package launch

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"dchain/transport"
)

// distVar names the program that scripts/build has made.
const distVar = "DCHAIN_DIST"

// dist is a command of that program, in a home of its own.
func dist(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	program := os.Getenv(distVar)
	if program == "" {
		if os.Getenv("CI") == "true" {
			t.Fatalf("%s is not set", distVar)
		}
		t.Skipf("%s is not set to the program that scripts/build makes", distVar)
	}
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "HF_HUB_OFFLINE=1")
	return cmd
}

// output runs a command to its end.
func output(t *testing.T, cmd *exec.Cmd, code int) (stdout, stderr string) {
	t.Helper()
	var out, talk bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &talk
	cmd.Run()
	if got := cmd.ProcessState.ExitCode(); got != code {
		t.Fatalf("%q: exit code %d, want %d; stderr: %s", cmd.Args, got, code, &talk)
	}
	return out.String(), talk.String()
}

// children counts what a process has started.
func children(t *testing.T, pid int) int {
	t.Helper()
	tasks, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/children")
	if err != nil || len(tasks) == 0 {
		t.Fatalf("no threads of %d: %v", pid, err)
	}
	n := 0
	for _, task := range tasks {
		b, err := os.ReadFile(task)
		if err != nil {
			t.Fatal(err)
		}
		n += len(strings.Fields(string(b)))
	}
	return n
}

// The static program gives the same answer with its child as without, split or not, and passes exit codes on.
func TestDistVulkan(t *testing.T) {
	want, _ := output(t, dist(t, "generate", "--backend", "cpu", "-n", "6", "The king"), 0)
	if want == "" {
		t.Fatal("no answer")
	}
	for _, args := range [][]string{{}, {"--spawn", "2"}, {"--backend", "vulkan-dp4a"}} {
		got, _ := output(t, dist(t, append(append([]string{"generate"}, args...), "-n", "6", "The king")...), 0)
		if got != want {
			t.Errorf("%q: %q, want %q", args, got, want)
		}
	}
	report, _ := output(t, dist(t, "probe", "--backend", "vulkan-dp4a", "--json"), 0)
	var probe struct{ Used string }
	if err := json.Unmarshal([]byte(report), &probe); err != nil || probe.Used != "vulkan-dp4a" {
		t.Errorf("probe: %v, %s", err, report)
	}
	_, talk := output(t, dist(t, "probe", "--device", "99"), 2)
	if !strings.HasPrefix(talk, "dchain: --device: there is no Vulkan device 99, ") || strings.Count(talk, "\n") != 2 {
		t.Errorf("stderr %q", talk)
	}
}

// Where the child cannot run, the program says so once and computes on the processor, but never in place of a Vulkan
// backend that was asked for by name. A root folder with nothing in it has no C library and no /proc.
func TestDistWithoutTheCLibrary(t *testing.T) {
	chroot := func(args ...string) *exec.Cmd {
		cmd := dist(t, args...)
		root := t.TempDir()
		program, err := os.ReadFile(cmd.Path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, "dchain"), program, 0o700); err != nil {
			t.Fatal(err)
		}
		cmd.Path, cmd.Dir, cmd.Env = "/dchain", "/", []string{"HOME=/", "HF_HUB_OFFLINE=1"}
		cmd.Err = nil
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
		if os.Getuid() != 0 {
			// A user may change the root inside a namespace of his own.
			cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
			cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		}
		return cmd
	}
	want, talk := output(t, chroot("generate", "--backend", "cpu", "-n", "6", "The king"), 0)
	if strings.Contains(talk, "Vulkan") {
		t.Errorf("--backend cpu: %q", talk)
	}
	got, talk := output(t, chroot("generate", "-n", "6", "The king"), 0)
	if got != want || strings.Count(talk, "GPUs are not used, ") != 1 || !strings.Contains(talk, "no such file or directory") {
		t.Errorf("auto: %q, %q", got, talk)
	}
	_, talk = output(t, chroot("generate", "--backend", "vulkan", "x"), 1)
	if !strings.HasPrefix(talk, "dchain: --backend vulkan: starting the build with Vulkan that this program carries: ") {
		t.Errorf("vulkan: %q", talk)
	}
}

// The processor alone needs no child; a stage that uses Vulkan is one, and an interrupt ends both as it would end one.
func TestDistChild(t *testing.T) {
	for _, c := range []struct {
		backend string
		kids    int
	}{{"cpu", 0}, {"vulkan-dp4a", 1}} {
		dir := t.TempDir()
		if _, err := transport.LoadIdentity(filepath.Join(dir, "head")); err != nil {
			t.Fatal(err)
		}
		cmd := dist(t, "serve-stage", "--layers", "0-1", "--ctx", "64", "--listen", "127.0.0.1:0", "--backend", c.backend,
			"--authorized-keys", filepath.Join(dir, "head.pub"), "--identity", filepath.Join(dir, "id"))
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		var talk bytes.Buffer
		cmd.Stderr = &talk
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill() })
		var said []byte
		for b := make([]byte, 200); !bytes.HasSuffix(said, []byte("\nready\n")); {
			n, err := out.Read(b)
			if said = append(said, b[:n]...); err != nil {
				t.Fatalf("%s: %q: %v; %s", c.backend, said, err, &talk)
			}
		}
		if n := children(t, cmd.Process.Pid); n != c.kids {
			t.Errorf("%s: %d children, want %d", c.backend, n, c.kids)
		}
		start := time.Now()
		cmd.Process.Signal(os.Interrupt)
		cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != 0 || time.Since(start) > 10*time.Second {
			t.Errorf("%s: exit code %d after %v, %s", c.backend, code, time.Since(start), &talk)
		}
	}
}
