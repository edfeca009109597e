// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"fmt"
	"strings"

	"github.com/skylarkmq/skylark/perf/measure"
)

// Classic has a run print what RocketMQ's benchmark programs print, and nothing else: their start
// lines, a report line at each interval from the tenth second on, and for producers a last line.
// The fields are those of the start lines that settings do not have.
type Classic struct {
	Threads    int
	Async      bool
	Delay      bool
	DelayLevel int
	Trace      bool
	Suffix     bool   // the group has a suffix of two digits
	FilterType string // TAG or SQL92; empty: none
	FilterFile string // where the expression was read from
}

// printProduceHeader prints the start lines of RocketMQ's benchmark producer, or of its batch
// producer.
func printProduceHeader(cfg *Produce, out Output) {
	if out.Reports == nil || out.JSON {
		return
	}
	c := out.Classic
	if c == nil {
		c = &Classic{
			Threads: cfg.Connections * cfg.InFlight, Async: true, Delay: cfg.DelayLevel > 0,
			DelayLevel: cfg.DelayLevel,
		}
	}
	p := func(format string, args ...any) { _, _ = fmt.Fprintf(out.Reports, format, args...) }
	p("topic: %s, threadCount: %d, messageSize: %d, ", cfg.Topic, c.Threads, cfg.Size)
	if cfg.Batch > 1 {
		p("batchSize: %d, ", cfg.Batch)
	}
	p("keyEnable: %v, propertySize: %d, tagCount: %d, traceEnable: %v, aclEnable: %v",
		cfg.Keys, cfg.PropertySize, cfg.Tags, c.Trace, cfg.Credentials != nil)
	if cfg.Batch == 1 {
		p(", messageQuantity: %d, delayEnable: %v, delayLevel: %d, asyncEnable: %v",
			cfg.Count, c.Delay, c.DelayLevel, c.Async)
	}
	p("\n compressEnable: %v, reportInterval: %d\n", cfg.Compress != "", out.Every.Milliseconds())
	if cfg.Compress != "" {
		p("compressType: %s compressLevel: %d\n", strings.ToUpper(cfg.Compress), cfg.CompressLevel)
	}
}

// printConsumeHeader prints the start lines of RocketMQ's benchmark consumer.
func printConsumeHeader(cfg *Consume, out Output) {
	if out.Reports == nil || out.JSON {
		return
	}
	c := out.Classic
	if c == nil {
		c = &Classic{Threads: cfg.Connections, FilterFile: cfg.Filter, FilterType: cfg.FilterType}
		if cfg.Filter != "" && c.FilterType == "" {
			c.FilterType = filterTag
		}
	}
	orNull := func(s string) string {
		if s == "" {
			return "null"
		}
		return s
	}
	_, _ = fmt.Fprintf(out.Reports, "topic: %s, threadCount %d, group: %s, suffix: %v, "+
		"filterType: %s, expression: %s, msgTraceEnable: %v, aclEnable: %v, reportInterval: %d\n",
		cfg.Topic, c.Threads, cfg.Group, c.Suffix, orNull(c.FilterType), orNull(c.FilterFile), c.Trace,
		cfg.Credentials != nil, out.Every.Milliseconds())
	if out.Classic != nil && cfg.Filter != "" {
		_, _ = fmt.Fprintf(out.Reports, "Expression: %s\n", cfg.Filter)
	}
	_, _ = fmt.Fprintln(out.Reports, "Consumer Started.")
}

// printComplete prints the last line of RocketMQ's benchmark producer, which has two forms: the one
// with rates needs two snapshots.
func (p *part) printComplete(res *measure.Result, batch int, out Output) {
	if out.Reports == nil || out.JSON {
		return
	}
	t := p.sampler.Totals()
	total := t.Messages + t.SendFailed
	switch {
	case out.Classic == nil:
		_, _ = fmt.Fprintln(out.Reports, p.runRates().FinalProduceLine(res.Messages, batch))
	case p.rates.Len() > 1:
		_, _ = fmt.Fprintln(out.Reports, p.rates.Rates().FinalProduceLine(total, batch))
	default:
		_, _ = fmt.Fprintf(out.Reports, "[Complete] Send Total: %d Send Failed: %d Response Failed: %d\n",
			total, t.SendFailed, t.ResponseFailed)
	}
}
