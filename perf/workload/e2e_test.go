// SPDX-License-Identifier: Apache-2.0

package workload_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/engine"
	"github.com/skylarkmq/skylark/engine/enginetest"
	"github.com/skylarkmq/skylark/perf/measure"
	"github.com/skylarkmq/skylark/perf/workload"
)

// TestE2ERestartUnderLoad stops the broker gracefully while it takes numbered messages and starts it
// again: nothing that was acknowledged is lost, doubled, disordered or changed.
func TestE2ERestartUnderLoad(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cluster := enginetest.Start(t)
	makeTopic(ctx, t, cluster.NameServer())

	p := workload.DefaultProduce()
	p.NameServers, p.Topic, p.Verify = []string{cluster.NameServer()}, "load", true
	p.Connections, p.InFlight, p.Size = 3, 16, 200
	p.Duration = workload.Duration(1500 * time.Millisecond)
	type outcome struct {
		res *measure.Result
		err error
	}
	done := make(chan outcome, 1)
	go func() {
		res, err := workload.RunProduce(ctx, p, workload.Output{})
		done <- outcome{res, err}
	}()
	loaded := time.NewTimer(400 * time.Millisecond)
	<-loaded.C
	cluster.Restart()
	sent := <-done
	if sent.err != nil || !sent.res.OK {
		t.Fatalf("produce: %+v, %v", sent.res, sent.err)
	}

	c := workload.DefaultConsume()
	c.NameServers, c.Topic, c.Verify = p.NameServers, p.Topic, true
	got, err := workload.RunConsume(ctx, c, workload.Output{})
	if err != nil || !got.OK || got.Verify.Messages < sent.res.Messages {
		t.Errorf("consume: %+v, %+v, %v", got, got.Verify, err)
	}
	t.Logf("%d acknowledged, %d not, %d read", sent.res.Messages,
		sent.res.SendFailed+sent.res.ResponseFailed, got.Verify.Messages)
}

// TestE2ELargeMessages sends messages far above RocketMQ's 4 MiB and reads all of them back.
func TestE2ELargeMessages(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cluster := enginetest.Start(t, func(c *engine.Config) {
		c.MaxMessageSize, c.CommitLogFileSize = 64<<20, 160<<20
	})
	makeTopic(ctx, t, cluster.NameServer())

	p := workload.DefaultProduce()
	p.NameServers, p.Topic, p.Verify = []string{cluster.NameServer()}, "load", true
	p.InFlight, p.Count, p.Sizes = 2, 4, "20971520"
	p.Timeout = workload.Duration(30 * time.Second) // 40 MB in flight, beside whatever else runs
	sent, err := workload.RunProduce(ctx, p, workload.Output{})
	if err != nil || !sent.OK || sent.Messages != 4 {
		t.Fatalf("produce: %+v, %v", sent, err)
	}
	c := workload.DefaultConsume()
	c.NameServers, c.Topic, c.Verify = p.NameServers, p.Topic, true
	got, err := workload.RunConsume(ctx, c, workload.Output{})
	if err != nil || !got.OK || got.Verify.Messages != 4 {
		t.Errorf("consume: %+v, %+v, %v", got, got.Verify, err)
	}

	p.InFlight = 512
	_, err = workload.RunProduce(ctx, p, workload.Output{})
	if !errors.Is(err, workload.ErrSettings) || !strings.Contains(err.Error(), "lower in-flight") {
		t.Errorf("more under way than fits into memory: %v", err)
	}
}

func makeTopic(ctx context.Context, t *testing.T, nameServer string) {
	t.Helper()
	c, err := client.New([]string{nameServer})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(ctx)
	p, err := c.NewProducer("makes-topics", client.WithSendTimeout(20*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Send(ctx, &client.Message{Topic: "load", Body: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	for { // on a busy machine the broker may have stored it before the name server knew the topic
		if _, err := c.Queues(ctx, "load"); err == nil {
			return
		} else if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}
