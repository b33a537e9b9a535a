package cmd

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"dchain/transport"
)

// process is a dchain of a test.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended

	mu       sync.Mutex
	out, err bytes.Buffer
}

// start runs dchain in dir, with the keys of dir as home.
func start(t *testing.T, dir string, args ...string) *process {
	t.Helper()
	return startCommand(t, dir, exec.Command("dchain", args...))
}

// startCommand is start for a command that ends in becoming dchain.
func startCommand(t *testing.T, dir string, command *exec.Cmd) *process {
	t.Helper()
	testdata, err := filepath.Abs("../testdata")
	if err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: command, done: make(chan struct{})}
	p.cmd.Dir = dir
	p.cmd.Env = append(os.Environ(), builtinVar+"="+filepath.Join(testdata, "tales-qwen2"), "HOME="+dir, "TMPDIR="+dir, "HF_HUB_OFFLINE=1")
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var readers sync.WaitGroup
	for to, from := range map[*bytes.Buffer]*bufio.Reader{&p.out: bufio.NewReader(stdout), &p.err: bufio.NewReader(stderr)} {
		readers.Go(func() {
			for {
				b, err := from.ReadByte()
				if err != nil {
					return
				}
				p.mu.Lock()
				to.WriteByte(b)
				p.mu.Unlock()
			}
		})
	}
	go func() {
		readers.Wait()
		p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		p.cmd.Process.Kill()
		<-p.done
	})
	return p
}

func (p *process) stdout() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

func (p *process) stderr() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err.String()
}

// exit waits for the process to end and returns its exit code.
func (p *process) exit(t *testing.T, within time.Duration) int {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(within):
		t.Fatalf("%q still runs after %v; stderr: %s", p.cmd.Args, within, p.stderr())
	}
	return p.cmd.ProcessState.ExitCode()
}

// eventually waits until ok.
func eventually(t *testing.T, within time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(within); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after %v still not: %s", within, what)
		}
	}
}

// keys makes the head's key in a fresh home and lets it in.
func keys(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	id, err := transport.LoadIdentity(filepath.Join(dir, "head"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "authorized"), []byte(transport.AuthorizedKeyLine(id.PublicKey())+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// ring starts two stages for one session at a time and returns them with the value of --peers.
func ring(t *testing.T, dir string) ([]*process, string) {
	t.Helper()
	var stages []*process
	for i, layers := range []string{"0-3", "4-7"} {
		stages = append(stages, start(t, dir, "serve-stage", "--layers", layers, "--listen", "127.0.0.1:0", "--identity", fmt.Sprint("stage", i),
			"--authorized-keys", "authorized", "--max-sessions", "1", "--threads", "1"))
	}
	var addrs []string
	for _, s := range stages {
		eventually(t, 30*time.Second, "a stage is ready", func() bool { return strings.HasSuffix(s.stdout(), "\nready\n") })
		addrs = append(addrs, strings.Fields(s.stdout())[0])
	}
	return stages, strings.Join(addrs, ",")
}

// long is an answer that lasts: small steps, and no end of sequence.
func long(peers ...string) []string {
	return append([]string{"generate", "--identity", "head", "-n", "1000", "--temperature", "1", "--seed", "5", "--audit-every", "1", "--backend", "cpu"}, append(peers, "The king")...)
}

// speaks waits until a generation is under way.
func (p *process) speaks(t *testing.T) {
	t.Helper()
	eventually(t, 20*time.Second, "text comes", func() bool { return len(p.stdout()) > 20 })
	select {
	case <-p.done:
		t.Fatalf("it was over before the test could begin: %q, %s", p.stdout(), p.stderr())
	default:
	}
}

// An interrupted head exits 130, and the stages are free for the next one.
func TestInterruptEndsTheSession(t *testing.T) {
	t.Parallel()
	dir := keys(t)
	stages, peers := ring(t, dir)
	head := start(t, dir, long("--peers", peers)...)
	head.speaks(t)
	head.cmd.Process.Signal(os.Interrupt)
	if code := head.exit(t, 5*time.Second); code != exitInterrupted {
		t.Errorf("exit code %d, want %d; stderr: %s", code, exitInterrupted, head.stderr())
	}
	if !strings.HasSuffix(head.stderr(), "dchain: interrupted\n") {
		t.Errorf("stderr: %s", head.stderr())
	}
	for i, s := range stages {
		eventually(t, 2*time.Second, "the stage says that the ring ended", func() bool { return strings.Contains(s.stderr(), "ring of 127.0.0.1:") })
		if strings.Count(s.stderr(), "ended: ") != 1 {
			t.Errorf("stage %d says: %s", i+1, s.stderr())
		}
	}
	next := start(t, dir, "generate", "--identity", "head", "--peers", peers, "-n", "4", "The king")
	if code := next.exit(t, 10*time.Second); code != exitOK {
		t.Errorf("the next head: exit code %d, %s", code, next.stderr())
	}
	for _, s := range stages {
		s.cmd.Process.Signal(syscall.SIGTERM)
		if code := s.exit(t, 5*time.Second); code != exitOK && code != exitInterrupted {
			t.Errorf("a stage that is told to end: exit code %d, %s", code, s.stderr())
		}
	}
}

// An interrupt, and even the death of the head, leaves no child behind, and no keys.
func TestChildrenEndWithTheHead(t *testing.T) {
	t.Parallel()
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
		dir := keys(t)
		head := start(t, dir, long("--spawn", "2")...)
		head.speaks(t)
		kids := childrenOf(t, head.cmd.Process.Pid)
		if len(kids) != 2 {
			t.Fatalf("%d children", len(kids))
		}
		head.cmd.Process.Signal(signal)
		if code := head.exit(t, 10*time.Second); signal == syscall.SIGINT && code != exitInterrupted {
			t.Errorf("exit code %d; stderr: %s", code, head.stderr())
		}
		eventually(t, 5*time.Second, fmt.Sprintf("the children are gone after %v", signal), func() bool {
			return !slices.ContainsFunc(kids, alive)
		})
		if left, err := filepath.Glob(filepath.Join(dir, "dchain-spawn-*")); err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	}
}

// childrenOf lists the children of a process.
func childrenOf(t *testing.T, pid int) []int {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(all) == 0 {
		t.Fatalf("no processes in /proc: %v", err)
	}
	var kids []int
	for _, file := range all {
		data, err := os.ReadFile(file)
		if err != nil {
			continue // gone meanwhile
		}
		// pid (name) state parent ...
		_, rest, _ := strings.Cut(string(data), ") ")
		if f := strings.Fields(rest); len(f) > 1 && f[1] == strconv.Itoa(pid) {
			kid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			if err != nil {
				t.Fatal(err)
			}
			kids = append(kids, kid)
		}
	}
	return kids
}

// alive says whether a process runs; one that nobody waited for does not.
func alive(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(data), ") ")
	return !strings.HasPrefix(rest, "Z")
}

// A stage says its counters when it is asked, as often as it is, and goes on.
func TestStageSaysItsCounters(t *testing.T) {
	t.Parallel()
	dir := keys(t)
	stages, peers := ring(t, dir)
	for n := range 2 {
		stages[0].cmd.Process.Signal(syscall.SIGUSR1)
		eventually(t, 5*time.Second, "the counters are said", func() bool {
			return strings.Count(stages[0].stderr(), "dchain_wrong_bits_total 0, ") == n+1
		})
	}
	head := start(t, dir, "generate", "--identity", "head", "--peers", peers, "-n", "4", "The king")
	if code := head.exit(t, 10*time.Second); code != exitOK {
		t.Errorf("exit code %d, %s", code, head.stderr())
	}
	if strings.Contains(stages[1].stderr(), "dchain_wrong_bits_total") {
		t.Errorf("the other stage was not asked, and says %s", stages[1].stderr())
	}
}

// Each signal that ends a stage lets it say its counters; with nohup a hangup is none.
func TestStageEndsInOrder(t *testing.T) {
	t.Parallel()
	dir := keys(t)
	serve := []string{"serve-stage", "--layers", "0-0", "--ctx", "64", "--listen", "127.0.0.1:0", "--backend", "cpu", "--threads", "1",
		"--authorized-keys", "authorized", "--identity"}
	ready := func(p *process) *process {
		eventually(t, 30*time.Second, "the stage is ready", func() bool { return strings.HasSuffix(p.stdout(), "\nready\n") })
		return p
	}
	end := func(p *process, signal syscall.Signal) {
		p.cmd.Process.Signal(signal)
		if code := p.exit(t, 5*time.Second); code != exitOK || strings.Count(p.stderr(), "dchain_wrong_bits_total 0, ") != 1 {
			t.Errorf("%v: exit code %d, %s", signal, code, p.stderr())
		}
	}
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		end(ready(start(t, dir, append(serve, fmt.Sprint("stage", int(signal)))...)), signal)
	}
	p := ready(startCommand(t, dir, exec.Command("sh", append([]string{"-c", `trap "" HUP; exec dchain "$@"`, "sh"}, append(serve, "nohup")...)...)))
	p.cmd.Process.Signal(syscall.SIGHUP)
	p.cmd.Process.Signal(syscall.SIGUSR1) // delivered after the hangup
	eventually(t, 5*time.Second, "the counters are said", func() bool { return strings.Contains(p.stderr(), "dchain_wrong_bits_total") })
	select {
	case <-p.done:
		t.Fatalf("a hangup ended it: %s", p.stderr())
	case <-time.After(300 * time.Millisecond):
	}
	p.cmd.Process.Signal(syscall.SIGTERM)
	p.exit(t, 5*time.Second)
}

// A head that is killed says nothing, and its stages still become free.
func TestKilledHeadFreesTheStages(t *testing.T) {
	t.Parallel()
	dir := keys(t)
	stages, peers := ring(t, dir)
	head := start(t, dir, long("--peers", peers)...)
	head.speaks(t)
	head.cmd.Process.Kill()
	<-head.done
	for _, s := range stages {
		eventually(t, 10*time.Second, "the stage says that the ring ended", func() bool { return strings.Contains(s.stderr(), "ended: ") })
	}
	next := start(t, dir, "generate", "--identity", "head", "--peers", peers, "-n", "4", "The king")
	if code := next.exit(t, 10*time.Second); code != exitOK {
		t.Errorf("the next head: exit code %d, %s", code, next.stderr())
	}
}

// A stage that is killed ends the generation with an error that names it, and not the other stage.
func TestKilledStageIsNamed(t *testing.T) {
	t.Parallel()
	for victim := range 2 {
		t.Run(fmt.Sprint("stage ", victim+1), func(t *testing.T) {
			t.Parallel()
			dir := keys(t)
			stages, peers := ring(t, dir)
			head := start(t, dir, long("--peers", peers)...)
			head.speaks(t)
			stages[victim].cmd.Process.Kill()
			if code := head.exit(t, 10*time.Second); code != exitFailure {
				t.Errorf("exit code %d", code)
			}
			want := fmt.Sprintf("dchain: hop %d (%s, layers ", victim+1, strings.Split(strings.Split(peers, ",")[victim], "@")[1])
			if !strings.Contains(head.stderr(), want) || !strings.Contains(head.stderr(), "last good position") || strings.Count(head.stderr(), "\n") != 1 ||
				strings.Count(head.stderr(), "link to") != 1 {
				t.Errorf("stderr %q, want one line with %q that says of one link what became of it", head.stderr(), want)
			}
			other := stages[1-victim]
			eventually(t, 10*time.Second, "the other stage says that the ring ended", func() bool { return strings.Contains(other.stderr(), "ended: ") })
		})
	}
}

// An address that swallows everything costs a few seconds.
func TestSilentAddress(t *testing.T) {
	t.Parallel()
	silent, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	dir := keys(t)
	begin := time.Now()
	head := start(t, dir, "generate", "--identity", "head", "--peers", silent.LocalAddr().String(), "--backend", "cpu", "x")
	if code := head.exit(t, 15*time.Second); code != exitFailure {
		t.Errorf("exit code %d", code)
	}
	if took := time.Since(begin); took > 7*time.Second {
		t.Errorf("it took %v", took)
	}
	if want := fmt.Sprintf("dchain: hop 1 (%s) failed while connecting: ", silent.LocalAddr()); !strings.HasPrefix(head.stderr(), want) || !strings.Contains(head.stderr(), "is a stage listening there") {
		t.Errorf("stderr %q, want %q...", head.stderr(), want)
	}
}
