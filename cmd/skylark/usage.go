// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/skylarkmq/skylark/engine/settings"
)

// plainUsage has a usage text show switches as --json and not as --json[=true|false].
func plainUsage(usage func(*cobra.Command) error) func(*cobra.Command) error {
	return func(cmd *cobra.Command) error {
		out := cmd.OutOrStderr()
		var text bytes.Buffer
		cmd.SetOut(&text)
		err := usage(cmd)
		cmd.SetOut(out)
		if err != nil {
			return err
		}
		_, err = out.Write([]byte(plainSwitches(text.String())))
		return err
	}
}

const switchSuffix = "[=true|false]"

var flagLine = regexp.MustCompile(`^( {2}-\S, --| {6}--)(.*?)( {3,})`)

// plainSwitches takes switchSuffix out of each paragraph of flags and closes the gap that is left.
func plainSwitches(text string) string {
	paragraphs := strings.Split(text, "\n\n")
	for i, p := range paragraphs {
		lines := strings.Split(p, "\n")
		gap := len(p)
		for j, line := range lines {
			if name, rest, ok := strings.Cut(line, switchSuffix); ok {
				lines[j] = name + strings.Repeat(" ", len(switchSuffix)) + rest
			}
			if m := flagLine.FindStringSubmatch(lines[j]); m != nil {
				gap = min(gap, len(m[3])-3)
			}
		}
		for j, line := range lines {
			if m := flagLine.FindString(line); m != "" {
				lines[j] = m[:len(m)-gap] + line[len(m):]
			}
		}
		paragraphs[i] = strings.Join(lines, "\n")
	}
	return strings.Join(paragraphs, "\n\n")
}

// flagError names the flag that was probably meant.
func flagError(cmd *cobra.Command, err error) error {
	var missing *pflag.NotExistError
	if !errors.As(err, &missing) || missing.GetSpecifiedShortnames() != "" {
		return misuse{err}
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	if near := settings.Nearest(missing.GetSpecifiedName(), names); near != "" {
		return misuse{fmt.Errorf("%w; did you mean --%s?", err, near)}
	}
	return misuse{err}
}

// required refuses a command line that lacks some of the flags given as pairs of name and value.
func required(pairs ...string) error {
	var missing []string
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] == "" {
			missing = append(missing, "--"+pairs[i])
		}
	}
	switch n := len(missing); n {
	case 0:
		return nil
	case 1:
		return misuse{fmt.Errorf("%s is required", missing[0])}
	default:
		return misuse{fmt.Errorf("%s and %s are required",
			strings.Join(missing[:n-1], ", "), missing[n-1])}
	}
}
