package cmd

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"dchain/plan"
	"dchain/stage"
	"dchain/transport"
	"dchain/units"
)

// startStage VAR ARGS... runs "dchain serve-stage ARGS..." in the background until the script ends, waits until it says
// ready, and sets the variable VAR to the address it printed, VAR_HOST to its host:port and VAR_PORT to the port.
func startStage(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: stage VAR ARGS...")
	}
	exe, err := exec.LookPath("dchain")
	ts.Check(err)
	c := exec.Command(exe, append([]string{"serve-stage", "--listen", "127.0.0.1:0", "--until-eof"}, args[1:]...)...)
	c.Dir = ts.MkAbs(".")
	for _, name := range []string{"PATH", "HOME", "HF_HOME", "HF_HUB_OFFLINE", builtinVar} {
		c.Env = append(c.Env, name+"="+ts.Getenv(name))
	}
	stdin, err := c.StdinPipe()
	ts.Check(err)
	stdout, err := c.StdoutPipe()
	ts.Check(err)
	ts.Check(c.Start())
	ts.Defer(func() {
		stdin.Close() // it ends by itself then
		time.AfterFunc(10*time.Second, func() { c.Process.Kill() })
		c.Wait()
	})
	lines := make(chan string, 2)
	go func() {
		defer close(lines)
		for scan := bufio.NewScanner(stdout); scan.Scan(); {
			lines <- scan.Text()
			if scan.Text() == "ready" {
				io.Copy(io.Discard, stdout)
			}
		}
	}()
	addr := ""
	deadline := time.After(3 * time.Minute)
	for {
		select {
		case line, ok := <-lines:
			switch {
			case !ok:
				ts.Fatalf("serve-stage %q ended before it was ready", args[1:])
			case line == "ready":
				ts.Setenv(args[0], addr)
				_, host, _ := strings.Cut(addr, "@")
				ts.Setenv(args[0]+"_HOST", host)
				ts.Setenv(args[0]+"_PORT", host[strings.LastIndex(host, ":")+1:])
				return
			}
			addr = line
		case <-deadline:
			ts.Fatalf("serve-stage %q was not ready within 3 minutes", args[1:])
		}
	}
}

// startStrange VAR WHAT runs a stage in this process that holds layers 0-7 of the built-in model, lets everybody in, and
// says of itself that it has another numerics version or another kernel probe.
func startStrange(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: strange VAR numerics|probe")
	}
	a := &app{builtin: os.DirFS(ts.Getenv(builtinVar)), ui: newUI(io.Discard, io.Discard)}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	ts.Defer(func() {
		cancel()
		running.Wait()
	})
	opts := stage.ServerOptions{Range: plan.Range{First: 0, Last: 7}, Context: 200, Sessions: 1}
	var err error
	opts.Model, err = a.openModel(ctx, "")
	ts.Check(err)
	opts.Device, err = units.NewCPU(units.CPUOptions{Threads: 1})
	ts.Check(err)
	opts.Local, err = a.localHello(ctx, opts.Model, opts.Mode)
	ts.Check(err)
	switch args[1] {
	case "numerics":
		opts.Local.Numerics++
	case "probe":
		opts.Local.ProbeHash[0] = 1
	default:
		ts.Fatalf("strange: unknown %q", args[1])
	}
	opts.Listen.Identity, err = transport.LoadIdentity(ts.MkAbs("strange-" + args[1]))
	ts.Check(err)
	opts.Listen.Addr, opts.Listen.Authorize = "127.0.0.1:0", func(transport.PublicKey) bool { return true }
	opts.Dial.Identity = opts.Listen.Identity
	server, err := stage.NewServer(ctx, opts)
	ts.Check(err)
	running.Go(func() { server.Run(ctx) })
	ts.Setenv(args[0], transport.PeerAddr{Host: server.Addr().String(), Fingerprint: opts.Listen.Identity.Fingerprint()}.String())
}
