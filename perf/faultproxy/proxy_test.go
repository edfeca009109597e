// SPDX-License-Identifier: Apache-2.0

package faultproxy_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/engine/enginetest"
	"github.com/skylarkmq/skylark/perf/faultproxy"
	"github.com/skylarkmq/skylark/perf/measure"
	"github.com/skylarkmq/skylark/perf/workload"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestVerificationFindsFaults: numbered messages are sent through a proxy that commits one kind of
// fault three times. Verification finds that kind alone, that often, and fails the run.
func TestVerificationFindsFaults(t *testing.T) {
	t.Parallel()
	const n, count = 3, 2000
	for fault, want := range map[faultproxy.Fault]measure.Faults{
		faultproxy.None:      {Messages: count},
		faultproxy.Drop:      {Messages: count - n, Lost: n},
		faultproxy.Duplicate: {Messages: count + n, Duplicates: n},
		faultproxy.Swap:      {Messages: count, Disordered: n},
		// A body that is not what was sent says nothing of itself: its number is missing too.
		faultproxy.Flip:  {Messages: count - n, Changed: n, Lost: n},
		faultproxy.Delay: {Messages: count, Late: n},
	} {
		for _, binary := range []bool{false, true} {
			name := "fault=" + string(fault) + "/header=json"
			if binary {
				name = "fault=" + string(fault) + "/header=binary"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				produced, consumed, injected := through(t, fault, n, count, binary)
				if !produced.OK || produced.Messages != count {
					t.Errorf("produced: %+v", produced)
				}
				if fault != faultproxy.None && injected != n {
					t.Errorf("%d sends were hit, want %d", injected, n)
				}
				if consumed.OK != (fault == faultproxy.None) {
					t.Errorf("run is good: %v; %s", consumed.OK, consumed.Problem)
				}
				ignore := cmpopts.IgnoreFields(measure.Faults{}, "Streams", "Examples")
				if diff := cmp.Diff(want, *consumed.Verify, ignore); diff != "" {
					t.Errorf("verdict (-want +got):\n%s\n%v", diff, consumed.Verify.Examples)
				}
			})
		}
	}
}

// through produces over a proxy and consumes past it.
func through(
	t *testing.T, fault faultproxy.Fault, n, count int64, binary bool,
) (produced, consumed *measure.Result, injected int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cluster := enginetest.Start(t)
	proxy, err := faultproxy.Start(faultproxy.Config{
		NameServer: cluster.NameServer(), Broker: cluster.Broker(), Fault: fault, Every: 101,
		Count: n, Delay: 2500 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	p := workload.DefaultProduce()
	p.NameServers, p.Topic, p.Verify, p.Binary = []string{proxy.NameServer()}, "checked", true, binary
	p.Timeout = workload.Duration(10 * time.Second)
	// One message in flight: those behind a delayed one are not late themselves.
	p.Connections, p.InFlight, p.Count, p.Queues = 2, 1, count, 4
	if produced, err = workload.RunProduce(ctx, p, workload.Output{}); err != nil {
		t.Fatal(err)
	}
	c := workload.DefaultConsume()
	c.NameServers, c.Topic, c.Verify = []string{cluster.NameServer()}, "checked", true
	if fault == faultproxy.Delay { // far above what a busy machine delays by itself
		c.Late = workload.Duration(2 * time.Second)
	}
	if consumed, err = workload.RunConsume(ctx, c, workload.Output{}); err != nil {
		t.Fatal(err)
	}
	return produced, consumed, proxy.Injected()
}

// TestProxyPassesOn: without a fault a client of this module works through the proxy as without it.
func TestProxyPassesOn(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	cluster := enginetest.Start(t)
	proxy, err := faultproxy.Start(faultproxy.Config{
		NameServer: cluster.NameServer(), Broker: cluster.Broker(), Every: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	c, err := client.New([]string{proxy.NameServer()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(ctx)
	p, err := c.NewProducer("through")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Send(ctx, &client.Message{Topic: "plain", Body: []byte("x")}); err != nil {
		t.Errorf("send through the proxy: %v", err)
	}
	if proxy.Injected() != 0 {
		t.Errorf("%d faults without being asked", proxy.Injected())
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]faultproxy.Config{
		"no interval":        {Fault: faultproxy.Drop},
		"delay without time": {Fault: faultproxy.Delay, Every: 1},
	} {
		if p, err := faultproxy.Start(cfg); err == nil {
			p.Close()
			t.Errorf("%s: taken", name)
		}
	}
}
