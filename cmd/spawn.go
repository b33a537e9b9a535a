package cmd

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"dchain/plan"
	"dchain/transport"
)

// children are stages started as processes of this machine, with keys of their own that live as long as they do.
type children struct {
	procs []*child
	head  *transport.Identity // the key they let in
	dir   string              // of the keys
}

const (
	spawnTimeout = 10 * time.Minute // until a child has loaded and says ready
	killAfter    = 5 * time.Second  // between asking a child to end and killing it
)

// spawn starts one stage for each range of layers on loopback and waits until all are ready. They end with close, and with
// this process however it ends: a child watches its standard input, which closes then.
func (a *app) spawn(ctx context.Context, o spawnOptions) (*children, error) {
	dir, err := os.MkdirTemp("", "dchain-spawn-")
	if err != nil {
		return nil, fmt.Errorf("starting stages: %w", err)
	}
	kids := &children{dir: dir}
	if err := kids.start(ctx, o); err != nil {
		kids.close()
		return nil, fmt.Errorf("starting stages: %w", err)
	}
	return kids, nil
}

// spawnOptions say what the children serve.
type spawnOptions struct {
	request   *clusterRequest
	kernels   string // that this process has gated
	devices   []int  // Vulkan devices that they may use, that of this process first; empty for none
	ranges    []plan.Range
	positions int
	sessions  int
	returnAll bool // the head reads out every position itself
}

// reads says whether the child that is i-th, from 0, holds the readout.
func (o *spawnOptions) reads(i int) bool { return i == len(o.ranges)-1 && !o.returnAll }

func (k *children) start(ctx context.Context, o spawnOptions) error {
	var err error
	if k.head, err = transport.LoadIdentity(filepath.Join(k.dir, "head")); err != nil {
		return err
	}
	authorized := filepath.Join(k.dir, "authorized_keys")
	if err := os.WriteFile(authorized, []byte(transport.AuthorizedKeyLine(k.head.PublicKey())+"\n"), 0o600); err != nil {
		return err
	}
	r := o.request
	group, groupCtx := errgroup.WithContext(ctx)
	for i, layers := range o.ranges {
		c, err := startChild(fmt.Sprintf("stage %d", i+1), append([]string{
			"serve-stage", "--model", modelName(r.model), "--weights", r.mode.String(), "--layers", layers.String(),
			"--ctx", strconv.Itoa(o.positions), "--max-sessions", strconv.Itoa(o.sessions), "--threads", strconv.Itoa(r.threads),
			"--audit-every", strconv.Itoa(r.audit),
			"--cache=" + strconv.FormatBool(r.cache), "--lanes=" + strconv.FormatBool(r.lanes), "--readout=" + strconv.FormatBool(o.reads(i)),
			"--listen", "127.0.0.1:0", "--identity", filepath.Join(k.dir, strconv.Itoa(i+1)), "--authorized-keys", authorized, "--until-eof",
		}, o.backendArgs(i)...))
		if err != nil {
			return err
		}
		k.procs = append(k.procs, c)
		group.Go(func() error { return c.ready(groupCtx) })
	}
	return group.Wait()
}

// deviceOf is the place in devices of the child that is i-th, from 0: the next one after this process, if that has layers.
func (o *spawnOptions) deviceOf(i int) int {
	if len(o.devices) == 0 {
		return 0
	}
	if o.ranges[0].First > 0 {
		i++
	}
	return i % len(o.devices)
}

// backendArgs make a child compute as this process does. On a device that this process has not gated the child does so.
func (o *spawnOptions) backendArgs(i int) []string {
	if len(o.devices) == 0 {
		return []string{"--gated-kernels", o.kernels}
	}
	at := o.deviceOf(i)
	args := []string{"--device", strconv.Itoa(o.devices[at])}
	if at > 0 {
		return append(args, "--backend", o.kernels)
	}
	return append(args, "--gated-kernels", o.kernels)
}

// close ends every child and removes the keys.
func (k *children) close() {
	var ends sync.WaitGroup
	for _, c := range k.procs {
		ends.Go(c.end)
	}
	ends.Wait()
	k.dropKeys()
}

// dropKeys removes the keys, which every process has read, and the file of those who may connect, once all have: nothing is left
// then if this process is killed.
func (k *children) dropKeys() { os.RemoveAll(k.dir) }

// peakMemory sums the most memory each child has held, in bytes.
func (k *children) peakMemory() int64 {
	var sum int64
	for _, c := range k.procs {
		sum += peakMemoryOf(strconv.Itoa(c.cmd.Process.Pid))
	}
	return sum
}

// child is a stage process.
type child struct {
	name   string
	addr   transport.PeerAddr // once ready
	cmd    *exec.Cmd
	stdin  io.Closer
	lines  chan string   // standard output; closed at its end
	exited chan struct{} // closed when the process is gone

	mu   sync.Mutex
	last string // last line of standard error
}

// ownProgram is the path of the program that this process runs. On Linux that is a link to the file itself, which may have
// no name: it lies in memory, or another version has taken its place.
func ownProgram() (string, error) {
	const self = "/proc/self/exe"
	if _, err := os.Stat(self); err == nil {
		return self, nil
	}
	return os.Executable()
}

func startChild(name string, args []string) (*child, error) {
	fail := func(err error) (*child, error) { return nil, fmt.Errorf("%s: %w", name, err) }
	exe, err := ownProgram()
	if err != nil {
		return fail(err)
	}
	c := &child{name: name, cmd: exec.Command(exe, args...), lines: make(chan string, 16), exited: make(chan struct{})}
	c.cmd.Args[0] = "dchain"
	c.cmd.SysProcAttr = ownGroup()
	c.cmd.WaitDelay = killAfter
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return fail(err)
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		return fail(err)
	}
	stderr, err := c.cmd.StderrPipe()
	if err != nil {
		return fail(err)
	}
	if err := c.cmd.Start(); err != nil {
		return fail(err)
	}
	var readers sync.WaitGroup
	readers.Go(func() {
		defer close(c.lines)
		for scan := bufio.NewScanner(stdout); scan.Scan(); {
			select {
			case c.lines <- scan.Text():
			default: // nobody reads beyond the first lines
			}
		}
	})
	readers.Go(func() {
		for scan := bufio.NewScanner(stderr); scan.Scan(); {
			c.mu.Lock()
			c.last = scan.Text()
			c.mu.Unlock()
		}
	})
	go func() {
		readers.Wait() // Wait closes the pipes, so they must have been read
		c.cmd.Wait()
		close(c.exited)
	}()
	return c, nil
}

// ready waits for the two lines a stage prints.
func (c *child) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, spawnTimeout, fmt.Errorf("not ready within %v", spawnTimeout))
	defer cancel()
	for {
		select {
		case line, ok := <-c.lines:
			if !ok {
				return fmt.Errorf("%s ended: %s", c.name, c.lastWords())
			}
			if line == "ready" {
				return nil
			}
			var err error
			if c.addr, err = transport.ParsePeerAddr(line); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", c.name, context.Cause(ctx))
		}
	}
}

// lastWords is the last line of the child's standard error, once it is gone.
func (c *child) lastWords() string {
	<-c.exited
	c.mu.Lock()
	defer c.mu.Unlock()
	if words := strings.TrimPrefix(c.last, "dchain: "); words != "" {
		return words
	}
	return "it gave no reason"
}

// end asks the child to end and waits; a child that does not is killed.
func (c *child) end() {
	c.stdin.Close()
	select {
	case <-c.exited:
		return
	case <-time.After(killAfter):
	}
	c.cmd.Process.Kill()
	<-c.exited
}
