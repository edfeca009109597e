// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/skylarkmq/skylark/perf/measure"
)

// Names of the files in a results folder.
const (
	ResultName  = "result.json"  // the result, or an array of several
	CommandName = "command.txt"  // the command line
	PageName    = "report.html"  // for a browser
	LogName     = "latency.hlog" // HdrHistogram log; with several parts latency-PART.hlog
)

// Folder is a results folder in the making. It is not safe for concurrent use.
type Folder struct {
	dir  string
	logs []*logFile
}

type logFile struct {
	file *os.File
	buf  *bufio.Writer
}

// Create makes the folder dir, and those above it. A folder that holds a result already is refused:
// results are added, not replaced.
func Create(dir string) (*Folder, error) {
	if _, err := os.Stat(filepath.Join(dir, ResultName)); err == nil {
		return nil, fmt.Errorf("report: %s holds a result already: name another folder", dir)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("report: making the results folder: %w", err)
	}
	return &Folder{dir: dir}, nil
}

// HistogramLog creates the histogram log of a part of the run; empty for a run of one part. Write
// or Close closes it.
func (f *Folder) HistogramLog(part string) (io.Writer, error) {
	name := LogName
	if part != "" {
		name = strings.TrimSuffix(LogName, ".hlog") + "-" + part + ".hlog"
	}
	file, err := os.Create(filepath.Join(f.dir, name))
	if err != nil {
		return nil, fmt.Errorf("report: creating a histogram log: %w", err)
	}
	log := &logFile{file: file, buf: bufio.NewWriter(file)}
	f.logs = append(f.logs, log)
	return log.buf, nil
}

// Close closes the histogram logs. It does nothing after Write.
func (f *Folder) Close() error {
	var errs []error
	for _, log := range f.logs {
		errs = append(errs, log.buf.Flush(), log.file.Close())
	}
	f.logs = nil
	return errors.Join(errs...)
}

// Discard removes what a run without a result has left: the histogram logs, and the folder if
// nothing else is in it.
func (f *Folder) Discard() {
	var names []string
	for _, log := range f.logs {
		names = append(names, log.file.Name())
	}
	_ = f.Close()
	for _, name := range names {
		_ = os.Remove(name)
	}
	_ = os.Remove(f.dir) // fails when it holds something, as it should
}

// Write closes the logs and writes everything else.
func (f *Folder) Write(command []string, results ...*measure.Result) error {
	if err := f.Close(); err != nil {
		return fmt.Errorf("report: writing a histogram log: %w", err)
	}
	var all any = results
	if len(results) == 1 {
		all = results[0]
	}
	text, err := json.MarshalIndent(all, "", " ")
	if err != nil {
		return fmt.Errorf("report: result as JSON: %w", err)
	}
	page := RunPage(command, results...)
	html, err := page.HTML()
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{
		ResultName:  append(text, '\n'),
		CommandName: []byte(strings.Join(command, " ") + "\n"),
		PageName:    html,
	} {
		if err := os.WriteFile(filepath.Join(f.dir, name), content, 0o644); err != nil {
			return fmt.Errorf("report: writing the results folder: %w", err)
		}
	}
	return nil
}

// Path returns the place of a file of the folder.
func (f *Folder) Path(name string) string { return filepath.Join(f.dir, name) }
