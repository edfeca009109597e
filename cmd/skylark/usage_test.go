// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestHelpIsPlain: no help text shows how pflag writes switches, and flags stand three blanks
// before their texts.
func TestHelpIsPlain(t *testing.T) {
	t.Parallel()
	for _, line := range commandLines((&app{env: noEnv}).root(), nil) {
		out := must(t, append(line, "--help")...)
		if strings.Contains(out, "[=") && !strings.Contains(out, "usage:") {
			t.Errorf("%v: %s", line, out)
		}
	}
	version := must(t, "version", "--help")
	if !strings.Contains(version, "\n  -h, --help   help for version\n") ||
		!strings.Contains(version, "\n      --json   print results") {
		t.Errorf("got %q", version)
	}
}

func commandLines(cmd *cobra.Command, path []string) [][]string {
	lines := [][]string{path}
	for _, sub := range cmd.Commands() {
		lines = append(lines, commandLines(sub, append(path[:len(path):len(path)], sub.Name()))...)
	}
	return lines
}
