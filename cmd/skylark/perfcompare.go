// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/skylarkmq/skylark/perf/report"
)

func (a *app) perfCompareCommand() *cobra.Command {
	var alpha float64
	var page string
	var failWorse bool
	cmd := &cobra.Command{
		Use:   "compare A B",
		Short: "Hold two results against each other, and say what is noise",
		Long: "Reads two sides and prints their figures beside each other, with the ratio of B to A. " +
			"A side is a folder that\n--out made, a folder of such folders (several runs of one load), " +
			"a file with what --json printed, or FOLDER#LOAD/SIDE\nfor the rounds in a folder of perf/peer.\n\nWith 4 runs or more on each side their figures are " +
			"compared, otherwise blocks of their seconds; a difference that\nchance alone could have " +
			"made is called noise. perf/README.md says how.",
		Example: "  skylark perf compare before after\n" +
			"  skylark perf compare before.json after.json --html compared.html",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return misuse{fmt.Errorf("compare takes two results, not %d", len(args))}
			}
			return nil
		},
	}
	fl := cmd.Flags()
	fl.Float64Var(&alpha, "alpha", 0, fmt.Sprintf("probability with which chance alone may be called a "+
		"difference, above 0 and below 1; 0: %g between runs, %g between seconds",
		report.AlphaRuns, report.AlphaSeconds))
	fl.StringVar(&page, "html", "", "also write a page for a browser to this file")
	fl.BoolVar(&failWorse, "fail-worse", false, "exit with 1 when a figure of B is worse beyond noise")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if alpha < 0 || alpha >= 1 {
			return misuse{fmt.Errorf("--alpha is %v, want at least 0 and below 1", alpha)}
		}
		var sides [2]report.Side
		for i, name := range args {
			var err error
			if sides[i], err = report.Load(name); err != nil {
				return err
			}
		}
		return a.compare(sides[0], sides[1], alpha, page, failWorse)
	}
	return cmd
}

func (a *app) compare(x, y report.Side, alpha float64, page string, failWorse bool) error {
	list := report.CompareParts(x, y, alpha)
	if len(list) == 0 {
		return fmt.Errorf("%s has the parts %q and %s %q: none is in both", x.Name, x.Parts(), y.Name,
			y.Parts())
	}
	worse := false
	for _, c := range list {
		worse = worse || c.Worse()
		if !a.json {
			c.WriteText(a.stdout)
			continue
		}
		text, err := json.Marshal(c)
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintln(a.stdout, string(text))
	}
	if page != "" {
		html, err := report.ComparisonPage(list, x, y).HTML()
		if err != nil {
			return err
		}
		if err := os.WriteFile(page, html, 0o644); err != nil {
			return err
		}
	}
	if failWorse && worse {
		return errReported
	}
	return nil
}
