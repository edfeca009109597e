// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"bytes"
	"context"
	"fmt"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/client/scripttest"
	"github.com/skylarkmq/skylark/net/remoting"
)

// TestMain finds goroutines that outlive the tests. The ignored ones belong to a pool that gnet,
// which the broker of the whole-system tests imports, makes at import.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction("github.com/panjf2000/ants/v2.(*poolCommon).purgeStaleWorkers"),
		goleak.IgnoreTopFunction("github.com/panjf2000/ants/v2.(*poolCommon).ticktock"))
}

// within gives a test's calls an end well before the test binary's.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// tracked are the running tests whose goroutines are looked at in the end.
var tracked sync.Map // of struct{} by name

// track gives what a test starts from here on the test's name, and finds goroutines of clients that
// are left after all clean-ups that come later. TestMain finds those of tests that made no client.
func track(t *testing.T) {
	t.Helper()
	name := t.Name()
	pprof.SetGoroutineLabels(pprof.WithLabels(t.Context(), pprof.Labels("test", name)))
	if _, known := tracked.LoadOrStore(name, struct{}{}); known {
		return
	}
	t.Cleanup(func() {
		tracked.Delete(name)
		var left []string
		for range 500 {
			if left = goroutinesOf(name); len(left) == 0 {
				return
			}
			<-time.After(10 * time.Millisecond)
		}
		t.Errorf("goroutines are left:\n%s", strings.Join(left, "\n\n"))
	})
}

// goroutinesOf returns the stacks of a test's goroutines that run a client's code. Those of
// connections are left to TestMain: a broker that a test starts has such, too.
func goroutinesOf(name string) (stacks []string) {
	var profile bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&profile, 1); err != nil {
		return []string{err.Error()}
	}
	label := fmt.Sprintf(`"test":%q`, name)
	for stack := range strings.SplitSeq(profile.String(), "\n\n") {
		if strings.Contains(stack, "skylark/client.") && strings.Contains(stack, label) {
			stacks = append(stacks, stack)
		}
	}
	return stacks
}

func newClient(t *testing.T, nameServer string, opts ...client.Option) *client.Client {
	t.Helper()
	track(t)
	c, err := client.New([]string{nameServer}, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return c
}

func newProducer(
	t *testing.T, c *client.Client, opts ...client.ProducerOption,
) *client.Producer {
	t.Helper()
	p, err := c.NewProducer("pg", opts...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func newReader(
	t *testing.T, c *client.Client, group string, opts ...client.ConsumerOption,
) *client.Reader {
	t.Helper()
	r, err := c.NewReader(group, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func text(body string) *client.Message {
	return &client.Message{Topic: "t", Body: []byte(body)}
}

// poll collects n messages, in the order they came.
func poll(t *testing.T, r *client.Reader, n int) []*client.Received {
	t.Helper()
	ctx := within(t)
	var all []*client.Received
	for len(all) < n {
		ms, err := r.Poll(ctx, n-len(all))
		if err != nil {
			t.Fatalf("poll after %d of %d messages: %v", len(all), n, err)
		}
		all = append(all, ms...)
	}
	return all
}

func cluster(t *testing.T, brokers int) (*scripttest.Cluster, *client.Client) {
	t.Helper()
	s := scripttest.NewCluster(t, brokers)
	return s, newClient(t, s.NameServer.Addr)
}

func refusePull(*scripttest.Request) *scripttest.Reply {
	return &scripttest.Reply{Code: remoting.NoPermission, Remark: "the topic is not readable"}
}
