// SPDX-License-Identifier: Apache-2.0

// Package report writes what a load run measured, and holds two of them against each other.
//
// Folder is what --out names: the result, the histograms of each second, the command line and a
// page that opens in a browser without a network. Load reads results back, Compare says how two
// sides differ and what of it is noise, and Page renders results, tables and charts as HTML.
// perf/measure measures; nothing here does.
//
//	f, err := report.Create("run1")
//	// ... f.HistogramLog() takes the latencies of each second
//	err = f.Write(command, result)
package report
