package cmd

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"dchain/cmd/launch"
	"dchain/units/vk"
)

// workerExit ends a command that the carried build with Vulkan has run, with its exit code. It has said everything itself.
type workerExit int

func (e workerExit) Error() string { return fmt.Sprintf("the command ended with exit code %d", int(e)) }

// delegate runs a command that may use a GPU in the build with Vulkan that this program carries, if it does. A command
// that would take a GPU where there is one is left to this program, with a note, where that build cannot run.
func (a *app) delegate(c *cobra.Command, worker string) error {
	backend := gpuBackend(c)
	if vk.Built || worker == "" || backend == "" {
		return nil
	}
	ended, err := launch.Run(worker, a.args)
	switch {
	case err != nil && backend == "auto":
		a.ui.note("GPUs are not used, the build with Vulkan that this program carries does not run here: %v (--backend cpu does not try)", err)
		return nil
	case err != nil:
		return fmt.Errorf("--backend %s: starting the build with Vulkan that this program carries: %w", backend, err)
	case ended.Crash:
		a.ui.note("dchain: the build with Vulkan crashed (%s)", ended.Signal)
		a.ui.note("hint: if the GPU's driver is to blame, --backend cpu runs without it")
	}
	return workerExit(ended.Code)
}

// gpuBackend is the value of --backend if the command has that flag and it allows a GPU, else "". A stage that its parent
// has started for the processor computes there.
func gpuBackend(c *cobra.Command) string {
	backend := c.Flags().Lookup("backend")
	if backend == nil || backend.Value.String() == "cpu" {
		return ""
	}
	if gated := c.Flags().Lookup("gated-kernels"); gated != nil && gated.Changed && !strings.HasPrefix(gated.Value.String(), vulkanPrefix) {
		return ""
	}
	return backend.Value.String()
}
