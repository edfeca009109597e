// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strconv"

	"github.com/skylarkmq/skylark/perf/measure"
)

// load is one row of the table: options of `skylark perf`, and the figures that are compared.
type load struct {
	name  string
	about string
	// produce are the options of the sending part; nil: there is none.
	produce []string
	// consume are the options of the reading part; nil: there is none. Together with a sending part it
	// reads what comes; alone it reads a backlog, which the sending options of backlog make.
	consume []string
	backlog []string
	count   int // messages of the backlog; 0: those of the plan

	// endToEnd are the options of `skylark perf latency`, which sends and reads by one clock.
	endToEnd []string
	java     bool              // sent by Apache's own Java client
	coldRead bool              // a backlog out of the page cache is read while messages are sent
	settings map[string]string // of broker.conf, over the common ones
	messages int               // of one run at most; 0: those of the plan

	quick bool // one of the few that QUICK=1 takes
	extra bool // only when asked for by name

	// Goals of the first figure, as ratios to Apache; 0: none.
	perCPU  float64 // messages per broker CPU-second, at least
	tail    float64 // p99.9, at most
	latency bool    // latencies are the broker's: not the age of a backlog
}

const (
	kilobyte = "1024"
	million  = "1000000"
)

func sends(size string, more ...string) []string {
	return append([]string{"--topic", "perf", "--size", size}, more...)
}

func reads(more ...string) []string { return append([]string{"--pull-batch", "32"}, more...) }

// backlogReaders read the backlog that often, so that a fast broker's CPU time is more than a few
// of the 10 ms steps it is counted in.
const backlogReaders = 4

func syncFlush() map[string]string { return map[string]string{"flushDiskType": "SYNC_FLUSH"} }

func allLoads() []load {
	return append(sendLoads(), readLoads()...)
}

func sendLoads() []load {
	return []load{
		{
			name: "ingest-small", about: "1 KB single sends, 4 connections x 64 in flight", quick: true,
			produce: sends(kilobyte, "--connections", "4", "--in-flight", "64"),
			perCPU:  10, tail: 1.0 / 3, latency: true,
		},
		{
			name: "ingest-128", about: "128 B single sends, 4 connections x 64 in flight",
			produce: sends("128", "--connections", "4", "--in-flight", "64"),
			perCPU:  15, tail: 1.0 / 5, latency: true,
		},
		{
			name: "ingest-batch", about: "1 KB in batches of 32, 4 connections x 4 in flight",
			produce: sends(kilobyte, "--connections", "4", "--in-flight", "4", "--batch", "32"),
			perCPU:  6, tail: 1.0 / 4, latency: true,
		},
		{
			name: "request-reply", about: "1 KB single sends, 64 connections that each wait", quick: true,
			produce: sends(kilobyte, "--connections", "64", "--in-flight", "1"),
			perCPU:  7, tail: 1.0 / 3, latency: true,
		},
		{
			name: "fixed-rate", about: "1 KB at a fixed 10 000/s, 8 connections, from the due moment",
			quick:   true,
			produce: sends(kilobyte, "--connections", "8", "--rate", "10000"),
			perCPU:  8, tail: 1.0 / 2, latency: true,
		},
		{
			name: "fixed-rate-30k", about: "1 KB at a fixed 30 000/s, 8 connections, from the due moment",
			produce: sends(kilobyte, "--connections", "8", "--rate", "30000"),
			perCPU:  7, tail: 1.0 / 2, latency: true,
		},
		{
			name: "large-in", about: "1 MB single sends, 4 connections x 2 in flight", messages: 4000,
			produce: sends(million, "--connections", "4", "--in-flight", "2"),
			perCPU:  3, latency: true,
		},
		{
			name: "sync-wait", about: "1 KB, synchronous flush, 64 connections that each wait",
			produce:  sends(kilobyte, "--connections", "64", "--in-flight", "1"),
			settings: syncFlush(), perCPU: 8, tail: 1.0 / 3, latency: true,
		},
		{
			name: "sync-flight", about: "1 KB, synchronous flush, 4 connections x 128 in flight",
			produce:  sends(kilobyte, "--connections", "4", "--in-flight", "128"),
			settings: syncFlush(), perCPU: 10, tail: 1.0 / 3, latency: true,
		},
		{
			name: "java-client", about: "1 KB, Apache's Java client, 64 threads that each wait", quick: true,
			java: true, perCPU: 7, latency: true,
		},
	}
}

func readLoads() []load {
	four := strconv.Itoa(backlogReaders)
	pull := reads("--topic", "backlog", "--from", "first", "--connections", "1", "--until-end",
		"--groups", four)
	fill := func(size string) []string {
		return []string{"--topic", "backlog", "--size", size, "--connections", "4", "--in-flight", "64"}
	}
	return []load{
		{
			name: "catch-up", about: "pulls of a hot backlog, 1 KB, 32 a pull", quick: true,
			consume: pull, backlog: fill(kilobyte), perCPU: 6,
		},
		{
			name: "catch-up-128", about: "pulls of a hot backlog, 128 B, 32 a pull",
			consume: pull, backlog: fill("128"), perCPU: 8,
		},
		{
			name: "tail", about: "end to end, 256 B, 5 000/s into 8 long-polling readers",
			endToEnd: sends("256", "--connections", "1", "--rate", "5000", "--queues", "8",
				"--consumer-connections", "8"),
			perCPU: 9, tail: 1.0 / 2, latency: true,
		},
		{
			name: "fan-out", about: "1 KB, 1 000/s, read by 32 groups",
			produce: sends(kilobyte, "--connections", "1", "--rate", "1000", "--queues", "8"),
			consume: reads("--topic", "perf", "--from", "last", "--connections", "1", "--groups", "32"),
			perCPU:  6, tail: 1.0 / 3, latency: true,
		},
		{
			name: "large-out", about: "pulls of a hot backlog of 1 MB bodies", count: 2000,
			consume: pull,
			backlog: []string{"--topic", "backlog", "--size", million, "--connections", "4", "--in-flight", "2"},
			perCPU:  3,
		},
		{
			name:    "cold-read",
			about:   "1 KB at a fixed 10 000/s while a backlog is read that is not in the page cache",
			produce: sends(kilobyte, "--connections", "8", "--rate", "10000"),
			consume: reads("--topic", "backlog", "--from", "first", "--connections", "1"),
			backlog: fill(kilobyte), coldRead: true, latency: true, count: 2_000_000,
		},
	}
}

func loadNames() []string {
	var names []string
	for _, l := range allLoads() {
		names = append(names, l.name)
	}
	return names
}

// outcome is one run of a load against one side.
type outcome struct {
	Side   string          `json:"side"`
	Round  int             `json:"round"` // from 1; 0: warm-up
	Result *measure.Result `json:"result"`
	// Reader is the reading part of a load that has both.
	Reader *measure.Result `json:"reader,omitempty"`
}

// tail is where the latency of the load is measured: at the reader, if there is one beside the
// sender, from the due moment with endToEnd, and otherwise from the broker's stamp.
func (o *outcome) tail(l *load) *measure.Result {
	if o.Reader != nil && !l.coldRead {
		return o.Reader
	}
	return o.Result
}
