// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/skylarkmq/skylark/perf/measure"
)

const (
	javaThreads = 64
	javaSettle  = time.Second // before the window: the client compiles itself
)

// javaSample is what skylark.interop.Load prints at its end.
type javaSample struct {
	Messages int64   `json:"messages"`
	Failed   int64   `json:"failed"`
	Seconds  float64 `json:"seconds"`
	Samples  int64   `json:"samples"`
	Mean     float64 `json:"mean"`
	P50      float64 `json:"p50"`
	P90      float64 `json:"p90"`
	P99      float64 `json:"p99"`
	P999     float64 `json:"p99.9"`
	Max      float64 `json:"max"`
}

// javaClient sends with Apache's own client and measures the broker between its two lines, so that
// our load generator is not the only witness.
func (b *bench) javaClient(
	ctx context.Context, s *side, d time.Duration,
) (*measure.Result, []string, error) {
	if b.java == nil {
		return nil, nil, errors.New("no Java client was fetched: do not leave the side apache out")
	}
	args := []string{
		s.names, "perf", strconv.Itoa(javaThreads), kilobyte,
		strconv.FormatInt(javaSettle.Milliseconds(), 10), strconv.FormatInt(d.Milliseconds(), 10),
	}
	cmd := b.java.Command(ctx, s.dir, "skylark.interop.Load", []string{"-Xms512m", "-Xmx512m"}, args)
	line := append([]string{"java", "skylark.interop.Load"}, args...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, line, err
	}
	if err := cmd.Start(); err != nil {
		return nil, line, err
	}
	res, err := b.watchJava(bufio.NewScanner(out), s)
	if waited := cmd.Wait(); waited != nil {
		err = errors.Join(err, waited, errors.New(lastLines(errs.String(), tailLines)))
	}
	return res, line, err
}

func (b *bench) watchJava(lines *bufio.Scanner, s *side) (*measure.Result, error) {
	if !lines.Scan() || lines.Text() != "begin" {
		return nil, fmt.Errorf("the Java client did not begin, but said %q", lines.Text())
	}
	before, err := measure.ReadUsage(s.brokerPID())
	if err != nil {
		return nil, err
	}
	kernel := measure.KernelCPU()
	if !lines.Scan() {
		return nil, errors.New("the Java client ended without a result")
	}
	after, err := measure.ReadUsage(s.brokerPID())
	if err != nil {
		return nil, err
	}
	var got javaSample
	if err := json.Unmarshal(lines.Bytes(), &got); err != nil {
		return nil, fmt.Errorf("result %q of the Java client: %w", lines.Text(), err)
	}
	process := measure.NewProcess(s.brokerPID(), before, after, got.Messages)
	process.RSSAnonMost = after.RSSAnonBytes
	return &measure.Result{
		Type: "result", Schema: measure.SchemaVersion, Command: "java-client", LatencyFrom: "sent",
		Seconds: got.Seconds, Messages: got.Messages, Requests: got.Messages,
		MessagesPerSec: float64(got.Messages) / got.Seconds, SendFailed: got.Failed, Broker: &process,
		KernelCPU: measure.KernelUsed(kernel, measure.KernelCPU()), OK: true,
		Latency: measure.Quantiles{
			Count: got.Samples, Samples: got.Samples, Mean: got.Mean, P50: measure.Millis(got.P50),
			P90: measure.Millis(got.P90), P99: measure.Millis(got.P99), P999: measure.Millis(got.P999),
			P9999: measure.Unknown(), Max: got.Max,
		},
	}, nil
}
