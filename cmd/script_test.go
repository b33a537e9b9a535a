package cmd

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"dchain/units/vk"
)

// builtinVar tells the program under test, which runs in a folder of its own, where the built-in model lies.
const builtinVar = "DCHAIN_TEST_BUILTIN"

// mesaCacheVar names the folder in which Mesa keeps what it has compiled.
const mesaCacheVar = "MESA_SHADER_CACHE_DIR"

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"dchain": func() {
			os.Exit(Main(os.DirFS(os.Getenv(builtinVar)), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
		},
	})
}

// TestScripts runs every script of testdata/script against the real command line, each in a process of its own.
func TestScripts(t *testing.T) {
	const dir = "testdata/script"
	if scripts, err := filepath.Glob(filepath.Join(dir, "*.txtar")); err != nil || len(scripts) == 0 {
		t.Fatalf("no scripts in %s (%v)", dir, err)
	}
	testdata, err := filepath.Abs("../testdata")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 dir,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			home := filepath.Join(env.WorkDir, "home")
			for k, v := range map[string]string{
				builtinVar: filepath.Join(testdata, "tales-qwen2"), "TESTDATA": testdata,
				"HOME": home, "HF_HOME": filepath.Join(home, "hf"), "HF_HUB_OFFLINE": "1",
			} {
				env.Setenv(k, v)
			}
			// The shaders that a renderer has compiled are no part of what is tried, and take minutes.
			if dir := os.Getenv(mesaCacheVar); dir != "" {
				env.Setenv(mesaCacheVar, dir)
			}
			return os.Mkdir(home, 0o700)
		},
		Condition: func(cond string) (bool, error) {
			switch cond {
			case "withvulkan":
				return vk.Built, nil
			case "vulkan", "renderer":
			default:
				return false, fmt.Errorf("unknown condition %q", cond)
			}
			devices, err := vk.List()
			if vk.Built && err != nil && os.Getenv("CI") == "true" {
				return false, err
			}
			gpu := slices.ContainsFunc(devices, func(d vk.DeviceInfo) bool { return !d.CPU() })
			return err == nil && !(cond == "renderer" && gpu), nil // a renderer: nothing but software renderers
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "stage": startStage, "mutate": mutate, "strange": startStrange},
	})
}

// exits CODE PROGRAM ARGS... runs a program and checks its exit code exactly; stdout and stderr can be inspected after.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM ARGS...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	var exit *exec.ExitError
	switch err := ts.Exec(args[1], args[2:]...); {
	case errors.As(err, &exit):
		got = exit.ExitCode()
	case err != nil:
		ts.Fatalf("running %s: %v", args[1], err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}
