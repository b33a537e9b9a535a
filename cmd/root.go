// Package cmd is the command line: one file per subcommand, and the only package that prints or decides exit codes.
package cmd

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os/signal"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"dchain/cmd/launch"
	"dchain/plan"
)

// app is what every subcommand needs from the process.
type app struct {
	builtin fs.FS // the embedded model
	args    []string
	in      io.Reader
	ui      *ui
}

// oneSignal is the time within which signals are one: a terminal interrupts a supervisor (package launch) and its child,
// to which the supervisor passes the interrupt on.
const oneSignal = 200 * time.Millisecond

// Main runs the command line and returns the exit code. builtin is the folder of the embedded model.
func Main(builtin fs.FS, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	launch.Began()
	ctx, stop := signal.NotifyContext(context.Background(), endSignals()...)
	defer stop()
	context.AfterFunc(ctx, func() { // a second signal ends the process at once
		time.Sleep(oneSignal)
		stop()
	})
	a := &app{builtin: builtin, args: args, in: stdin, ui: newUI(stdout, stderr)}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	var worker workerExit
	if errors.As(err, &worker) {
		return int(worker)
	}
	if err != nil {
		a.ui.fail(err)
	}
	return exitCode(err)
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "dchain",
		Short: "Run one language model split over several machines, bit for bit the unsplit answer",
		Long: `dchain runs one language model split over machines you can SSH to. Each machine serves a range of layers, read by
byte range from an unmodified Hugging Face repository; activations pass from stage to stage over QUIC and return to the
head, which picks the token. The answer is the unsplit answer, to the bit, and diff-check proves it.

MODEL is org/name[@revision] on the hub, a folder in hub layout, builtin (the default), or synthetic:NAME.`,
		Example: `  dchain generate --spawn 2 "Once upon a time"
  dchain serve-stage --model Qwen/Qwen2.5-0.5B-Instruct --layers 12-23 --listen :7433
  dchain inspect Qwen/Qwen2.5-0.5B-Instruct --layers 0-11`,
		SilenceErrors:     true,
		SilenceUsage:      true,
		DisableAutoGenTag: true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
		Args:              cobra.ArbitraryArgs,
		PersistentPreRunE: func(c *cobra.Command, _ []string) error {
			err := a.delegate(c, launch.Worker)
			if err == nil && c.Flags().Lookup("backend") != nil { // it computes, and here
				a.noteAddressSpace()
			}
			return err
		},
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return c.Help()
			}
			err := usageError("unknown command %q", args[0])
			c.SuggestionsMinimumDistance = 2
			if near := c.SuggestionsFor(args[0]); len(near) > 0 {
				return err.hint("did you mean %s?", strings.Join(near, " or "))
			}
			return err.hint("dchain --help lists the commands")
		},
	}
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usageError("%w", flagError(err)).hint("%s --help lists the flags", c.CommandPath())
	})
	root.AddCommand(a.generateCommand(), a.serveCommand(), a.diffCheckCommand(), a.inspectCommand(), a.planCommand(), a.evalCommand(), a.benchCommand(), a.probeCommand(), a.tokenizeCommand(), a.versionCommand())
	return root
}

// atMost refuses more than n arguments; usage names them.
func atMost(n int, usage string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) <= n {
			return nil
		}
		return usageError("%s takes %s, not %s", c.Name(), usage, plan.Plural(len(args), "argument")).hint("quote text that contains spaces")
	}
}

// firstArg is the first argument, or "".
func firstArg(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

// readAll reads standard input to its end.
func (a *app) readAll() ([]byte, error) {
	if a.in == nil {
		return nil, errors.New("reading standard input: there is none")
	}
	return io.ReadAll(a.in)
}
