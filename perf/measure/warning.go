// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"fmt"
	"time"
)

// Bounds from which a run says that its figures are not, or not only, the broker's.
const (
	ownCPUMost     = 0.90 // share of the processors the generator may use
	machineIdle    = 0.05 // share of the machine that was idle
	stolenMost     = 0.02 // share of the machine that other guests took
	rateReached    = 0.99 // of the rate asked
	waitingMost    = 0.25 // share of seconds that ended with much in the sockets
	waitingBytes   = 256 << 10
	belowZeroMost  = 0.001 // share of latencies below zero
	windowShortest = 5 * time.Second
)

// Warning is a reason to doubt a figure. Codes are stable: own-cpu, machine-busy, stolen-cpu,
// rate-not-reached, own-sockets, unsent-bytes, clock-step, clocks-differ, short-window,
// few-samples, broker-pid, errors.
type Warning struct {
	Code string `json:"code"`
	Text string `json:"text"`
}

// warn collects what is doubtful about a result that is otherwise complete.
func (s *Sampler) warn(r *Result) {
	add := func(cond bool, code, format string, args ...any) {
		if cond {
			r.Warnings = append(r.Warnings, Warning{Code: code, Text: fmt.Sprintf(format, args...)})
		}
	}
	if r.Environment != nil && r.Generator != nil && r.Seconds > 0 {
		cores := min(r.Environment.Cores, r.Environment.Processors)
		how := ""
		if n := s.of.Threads; n > 0 && n < cores {
			cores, how = n, fmt.Sprintf(" that its %d goroutines can use (--loops, --connections)", n)
		}
		used := r.Generator.CPUSeconds / r.Seconds
		add(used >= ownCPUMost*float64(cores), "own-cpu", "the load generator used %.2f of the %d cores%s: "+
			"it may be the bottleneck, not the broker", used, cores, how)
	}
	if m := r.Machine; m != nil {
		add(m.IdleShare < machineIdle, "machine-busy", "the machine was idle for %.1f %% only: what "+
			"runs on it shares its processors, the load generator too", 100*m.IdleShare)
		add(m.StolenShare > stolenMost, "stolen-cpu",
			"the hypervisor took %.1f %% of the processors away", 100*m.StolenShare)
	}
	add(r.RateAsked > 0 && r.MessagesPerSec < rateReached*r.RateAsked, "rate-not-reached",
		"%.0f of %.0f messages a second were reached: latencies are those of an overload",
		r.MessagesPerSec, r.RateAsked)
	unread, unsent := 0, 0
	for i := range s.series {
		if s.series[i].SocketUnread >= waitingBytes {
			unread++
		}
		if s.series[i].SocketUnsent >= waitingBytes {
			unsent++
		}
	}
	often := func(n int) bool { return n > 0 && float64(n) >= waitingMost*float64(len(s.series)) }
	add(often(unread), "own-sockets",
		"in %d of %d seconds more than %d KiB of answers waited in the load generator's sockets: it "+
			"reads slower than the broker answers", unread, len(s.series), waitingBytes>>10)
	add(often(unsent), "unsent-bytes",
		"in %d of %d seconds more than %d KiB that were written had not arrived: the network, or the "+
			"broker's reading, takes less than is sent", unsent, len(s.series), waitingBytes>>10)
	add(s.steps.count > 0, "clock-step", "the wall clock was set %d times, by %v in all: latencies "+
		"from a time stamp are wrong, those from sent or due are not", s.steps.count, s.steps.sum)
	below := float64(s.total.below)
	add(below > belowZeroMost*float64(r.Latency.Count) && below > 0, "clocks-differ",
		"%.0f latencies were below zero and count as zero: the clocks of the two hosts differ", below)
	add(time.Duration(r.Seconds*1e9) < windowShortest, "short-window",
		"%.1f s were measured: CPU comes in steps of 10 ms, and seconds differ", r.Seconds)
	if q := r.Latency; q.Samples > 0 {
		add(!q.P999.Known(), "few-samples", "%d samples: a quantile is told with %d samples above it",
			q.Samples, SamplesBeyond)
	}
	add(r.Broker != nil && r.Broker.CPUSeconds == 0 && r.Messages > 0, "broker-pid",
		"process %d used no CPU while messages were handled: it is not the broker", s.of.BrokerPID)
	failed := r.SendFailed + r.ResponseFailed
	add(failed > 0, "errors", "%d messages failed; no latency counts for them", failed)
}
