// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/skylarkmq/skylark/perf/measure"
	"github.com/skylarkmq/skylark/perf/report"
	"github.com/skylarkmq/skylark/perf/workload"
)

// outUsage is the help of --out, common to all loads.
const outUsage = "results folder to make: the result, a histogram of each second, a page for a browser"

// openFolder makes the results folder that --out names, before the load begins, and lets out fill
// its histogram log. Without a name it does nothing.
func (a *app) openFolder(dir string, out *workload.Output) error {
	if dir == "" {
		return nil
	}
	folder, err := report.Create(dir)
	if err != nil {
		return misuse{err}
	}
	out.HistogramLog = folder.HistogramLog
	a.folder = folder
	return nil
}

// discardFolder removes the results folder of a load that came to no result.
func (a *app) discardFolder() {
	if a.folder != nil {
		a.folder.Discard()
		a.folder = nil
	}
}

// fillFolder writes the results folder, if one is open, once there is a result.
func (a *app) fillFolder(results ...*measure.Result) error {
	if a.folder == nil {
		return nil
	}
	folder := a.folder
	a.folder = nil
	if err := folder.Write(append([]string{"skylark"}, a.args...), results...); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(a.stderr, "results are in %s\n", folder.Path(report.PageName))
	return nil
}
