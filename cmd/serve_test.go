package cmd

import (
	"bufio"
	"io"
	"os/exec"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// startStage VAR ARGS... runs "dchain serve-stage ARGS..." in the background until the script ends, waits until it says
// ready, and sets the variable VAR to the address it printed.
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
	deadline := time.After(30 * time.Second)
	for {
		select {
		case line, ok := <-lines:
			switch {
			case !ok:
				ts.Fatalf("serve-stage %q ended before it was ready", args[1:])
			case line == "ready":
				ts.Setenv(args[0], addr)
				return
			}
			addr = line
		case <-deadline:
			ts.Fatalf("serve-stage %q was not ready within 30 s", args[1:])
		}
	}
}
