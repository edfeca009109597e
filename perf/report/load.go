// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/skylarkmq/skylark/perf/measure"
)

// Side is one side of a comparison: the results of one run, or of several of the same load. A run
// has a result for each of its parts.
type Side struct {
	Name string
	Runs []*measure.Result
}

// Parts are the names of the parts that the runs have, in their order; "" for runs of one part.
func (s Side) Parts() []string {
	var names []string
	for _, r := range s.Runs {
		if !slices.Contains(names, r.Part) {
			names = append(names, r.Part)
		}
	}
	return names
}

// Part returns the side with the results of one part only.
func (s Side) Part(name string) Side {
	one := Side{Name: s.Name}
	for _, r := range s.Runs {
		if r.Part == name {
			one.Runs = append(one.Runs, r)
		}
	}
	return one
}

// Load reads the results at path: a results folder, a folder of such folders (each a run of the
// same load), or a file that holds a result, an array of them, or what `skylark perf --json`
// printed. FOLDER#LOAD/SIDE names the measured rounds of one load and side in a folder that
// perf/peer made, as results/2026-11-29-2321-peer-a47f91f#ingest-small/skylark. At least one result
// is returned.
func Load(path string) (Side, error) {
	side := Side{Name: filepath.Clean(path)}
	if folder, of, found := strings.Cut(path, "#"); found {
		var err error
		side.Runs, err = loadRounds(folder, of)
		return side, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return side, fmt.Errorf("report: %w", err)
	}
	files := []string{path}
	if info.IsDir() {
		files = []string{filepath.Join(path, ResultName)}
		if _, err := os.Stat(files[0]); err != nil {
			if files, err = filepath.Glob(filepath.Join(path, "*", ResultName)); err != nil {
				return side, fmt.Errorf("report: %w", err)
			}
		}
		if len(files) == 0 {
			return side, fmt.Errorf("report: neither %s nor a folder below it holds a %s", path,
				ResultName)
		}
	}
	for _, name := range files {
		runs, err := loadFile(name)
		if err != nil {
			return side, err
		}
		side.Runs = append(side.Runs, runs...)
	}
	if len(side.Runs) == 0 {
		return side, fmt.Errorf("report: %s holds no result", path)
	}
	return side, nil
}

// RoundsName is the file of a folder of perf/peer with every run, a JSON object a line, compressed.
const RoundsName = "runs.json.gz"

// roundLine is one line of RoundsName, as far as it is used here.
type roundLine struct {
	Load string `json:"load"`
	Run  struct {
		Side   string          `json:"side"`
		Round  int             `json:"round"` // from 1; 0: warm-up
		Result *measure.Result `json:"result"`
	} `json:"run"`
}

func loadRounds(folder, of string) ([]*measure.Result, error) {
	load, side, found := strings.Cut(of, "/")
	if !found {
		return nil, fmt.Errorf("report: %q names no load and side, as ingest-small/skylark", of)
	}
	f, err := os.Open(filepath.Join(folder, RoundsName))
	if err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("report: %s: %w", f.Name(), err)
	}
	var runs []*measure.Result
	var known []string
	for lines := json.NewDecoder(z); ; {
		var r roundLine
		err := lines.Decode(&r)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("report: %s: %w", f.Name(), err)
		}
		if name := r.Load + "/" + r.Run.Side; !slices.Contains(known, name) {
			known = append(known, name)
		}
		if r.Load == load && r.Run.Side == side && r.Run.Round > 0 && r.Run.Result != nil {
			runs = append(runs, r.Run.Result)
		}
	}
	if len(runs) == 0 {
		return nil, fmt.Errorf("report: %s has no rounds of %s, but of %v", f.Name(), of, known)
	}
	return runs, nil
}

func loadFile(name string) ([]*measure.Result, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	runs, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("report: %s: %w", name, err)
	}
	return runs, nil
}

// Parse returns the results in a text of JSON values: results, arrays of them, or report objects,
// which are passed over.
func Parse(text []byte) ([]*measure.Result, error) {
	var runs []*measure.Result
	values := json.NewDecoder(bytes.NewReader(text))
	for {
		var value json.RawMessage
		err := values.Decode(&value)
		if errors.Is(err, io.EOF) {
			return runs, nil
		}
		if err != nil {
			return nil, err
		}
		if strings.HasPrefix(string(value), "[") {
			var list []json.RawMessage
			if err := json.Unmarshal(value, &list); err != nil {
				return nil, err
			}
			for _, one := range list {
				if runs, err = appendResult(runs, one); err != nil {
					return nil, err
				}
			}
			continue
		}
		if runs, err = appendResult(runs, value); err != nil {
			return nil, err
		}
	}
}

func appendResult(runs []*measure.Result, value []byte) ([]*measure.Result, error) {
	var head struct {
		Type   string `json:"type"`
		Schema int    `json:"schema"`
	}
	if err := json.Unmarshal(value, &head); err != nil {
		return nil, err
	}
	if head.Type != "result" {
		return runs, nil
	}
	if head.Schema > measure.SchemaVersion {
		return nil, fmt.Errorf("result of schema %d, which a newer skylark wrote; this one reads up "+
			"to %d", head.Schema, measure.SchemaVersion)
	}
	r := &measure.Result{}
	if err := json.Unmarshal(value, r); err != nil {
		return nil, err
	}
	return append(runs, r), nil
}
