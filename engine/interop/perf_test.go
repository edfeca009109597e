// SPDX-License-Identifier: Apache-2.0

//go:build interop

package interop

import (
	"context"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/perf/measure"
	"github.com/skylarkmq/skylark/perf/workload"
)

// The load generator has no private way into a broker: everything it does, it does with Apache's.
func TestLoadGeneratorAgainstApache(t *testing.T) {
	t.Parallel()
	loadGenerator(t, apacheServers(t))
}

// loadGenerator sends, reads and judges with every form of request, at servers that are not ours.
func loadGenerator(t *testing.T, at target) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	p := workload.DefaultProduce()
	p.NameServers, p.Connections, p.InFlight = []string{at.NameServer}, 3, 8
	good := func(what string, res *measure.Result, messages int64) {
		t.Helper()
		if !res.OK || res.Messages < messages || res.SendFailed+res.ResponseFailed > 0 {
			t.Errorf("%s: %s %+v %v", what, res.Problem, res.Verify, res.Errors)
		}
	}

	for what, set := range map[string]func(*workload.Produce){
		"json":          func(*workload.Produce) {},
		"binary":        func(p *workload.Produce) { p.Binary = true },
		"batch":         func(p *workload.Produce) { p.Batch, p.Sizes = 10, "60-3000" },
		"keys and tags": func(p *workload.Produce) { p.Keys, p.Tags, p.PropertySize = true, 3, 40 },
	} {
		// The topic is made, numbered messages sent, read meanwhile and judged.
		cfg := workload.Together{
			Command: "verify", Produce: p, Drain: workload.Duration(20 * time.Second),
		}
		cfg.Produce.Topic, cfg.Produce.Verify, cfg.Produce.Count = name(t, "T"+what[:2]), true, 2000
		set(&cfg.Produce)
		reader := workload.DefaultConsume()
		reader.From, reader.Verify, reader.EndToEnd = workload.Last, true, true
		reader.AllowSwaps = true // its send threads swap what is in flight together
		cfg.Readers = []workload.Reader{{Name: "end-to-end", Consume: reader}}
		res, err := workload.RunTogether(ctx, cfg, workload.Output{})
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		good(what+", sends", res[0], 2000)
		good(what+", receipts", res[1], 1)
		if f := res[1].Verify; f.Messages != 2000 {
			t.Errorf("%s: %+v", what, f)
		}
	}

	// Compressed, and created by the first send.
	p.Topic, p.Count, p.Compress, p.CompressOver, p.Size = name(t, "TC"), 500, "zstd", 100, 2000
	res, err := workload.RunProduce(ctx, p, workload.Output{})
	if err != nil {
		t.Fatal(err)
	}
	good("compressed", res, 500)
	c := workload.DefaultConsume()
	c.NameServers, c.Topic, c.UntilEnd = p.NameServers, p.Topic, true
	if res, err = workload.RunConsume(ctx, c, workload.Output{}); err != nil {
		t.Fatal(err)
	}
	good("read back", res, 500)

	tx := workload.DefaultTransactions()
	tx.NameServers, tx.Topic, tx.Count, tx.Threads = p.NameServers, name(t, "TT"), 200, 4
	if res, err = workload.RunTransactions(ctx, tx, workload.Output{}); err != nil {
		t.Fatal(err)
	}
	good("transactions", res, 200)
}
