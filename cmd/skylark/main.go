// SPDX-License-Identifier: Apache-2.0

// Command skylark is a broker and name server compatible with Apache RocketMQ, with a client and a
// load generator, in one binary.
//
// Each subcommand has a file here. It turns flags into a configuration and calls one constructor;
// nothing else happens in this package. Results go to stdout, the rest to stderr. The exit code is
// 0 when the work was done, 1 when it failed, 2 when the command was misused.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/skylarkmq/skylark/perf/report"
)

// version is set by the linker.
var version = "development"

// Exit codes.
const (
	exitDone   = 0
	exitFailed = 1
	exitMisuse = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// After the first signal the second one ends the process at once.
	context.AfterFunc(ctx, stop)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr, os.LookupEnv)
	stop()
	os.Exit(code)
}

// app is what all subcommands share.
type app struct {
	stdout, stderr io.Writer
	env            func(name string) (string, bool)
	json           bool
	args           []string
	folder         *report.Folder // of the load that runs; nil without --out
}

// misuse is an error of the command line.
type misuse struct{ error }

func (m misuse) Unwrap() error { return m.error }

// errReported ends a command with exit code 1 when all was said already.
var errReported = errors.New("failed")

// run executes one command line and returns the exit code.
func run(
	ctx context.Context, args []string, stdout, stderr io.Writer,
	env func(string) (string, bool),
) int {
	a := &app{stdout: stdout, stderr: stderr, env: env, args: args}
	root := a.root()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	a.discardFolder()
	if err == nil {
		return exitDone
	}
	if errors.Is(err, errReported) {
		return exitFailed
	}
	_, _ = fmt.Fprintf(stderr, "skylark: %v\n", err)
	var m misuse
	if errors.As(err, &m) {
		_, _ = fmt.Fprintf(stderr, "See '%s --help'.\n", cmd.CommandPath())
		return exitMisuse
	}
	return exitFailed
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "skylark",
		Short: "A broker and name server compatible with Apache RocketMQ",
		Long: "Skylark carries messages for any Apache RocketMQ client.\n\n" +
			"Start everything in one process:\n  skylark server\n" +
			"Send and read a message:\n  skylark send --topic demo --body hello\n" +
			"  skylark receive --topic demo --from first",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          a.noArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.PersistentFlags().BoolVar(&a.json, "json", false, "print results as JSON, one object a line")
	root.SetFlagErrorFunc(flagError)
	root.SetUsageFunc(plainUsage(root.UsageFunc()))
	root.AddCommand(
		a.serverCommand(), a.nameserverCommand(), a.brokerCommand(), a.sendCommand(),
		a.receiveCommand(), a.adminCommand(), a.inspectCommand(), a.perfCommand(),
		a.versionCommand(),
	)
	return root
}

// noArgs refuses arguments, with the words of a mistyped command.
func (a *app) noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if cmd.HasSubCommands() {
		cmd.SuggestionsMinimumDistance = min(2, len(args[0])/2) // letters
		text := fmt.Sprintf("unknown command %q", args[0])
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			text += fmt.Sprintf("; did you mean %q?", near[0])
		}
		return misuse{errors.New(text)}
	}
	return misuse{fmt.Errorf("unexpected argument %q", args[0])}
}
