// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/engine/enginetest"
	"github.com/skylarkmq/skylark/net/invoke"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage/record"
)

// TestFaultDeleteUnderLoad deletes a topic again and again while it is produced to and pulled from.
// Each message that is delivered is whole and of this topic, pulls of the deleted topic are answered
// as such, and at the end its files are gone.
func TestFaultDeleteUnderLoad(t *testing.T) {
	t.Parallel()
	cluster := enginetest.Start(t)
	admin := newPeer(t, cluster.Broker())
	admin.send("doomed", 0, "first")
	admin.pull(pullRequest("doomed", 0, 0, "*", 0))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var sent, pulled, refused atomic.Int64
	var wg sync.WaitGroup
	worker := func(f func(pool *invoke.Pool) bool) {
		wg.Go(func() {
			pool := invoke.NewPool(invoke.Config{})
			defer func() { _ = pool.Close() }()
			for more := true; more && ctx.Err() == nil; {
				more = f(pool)
			}
		})
	}
	for queue := range int32(2) {
		worker(func(pool *invoke.Pool) bool {
			body := []byte(strings.Repeat("doomed", 100))
			r, ok := callOnce(t, pool, cluster, remoting.SendMessageV2, sendRequest("doomed", queue), body)
			if r != nil && r.Code == remoting.Success {
				sent.Add(1)
			}
			return ok
		})
		var next int64
		worker(func(pool *invoke.Pool) bool {
			r, ok := callOnce(t, pool, cluster, remoting.PullMessage,
				pullRequest("doomed", queue, next, "*", 50*time.Millisecond), nil)
			if !ok {
				return false
			}
			switch r.Code {
			case remoting.TopicNotExist:
				next = 0
				refused.Add(1)
			case remoting.Success, remoting.PullOffsetMoved:
				var head protocol.PullResponse
				if err := head.Decode(r.Command); err != nil {
					t.Errorf("pull response: %v", err)
					return false
				}
				next = head.NextOffset
			default:
			}
			for body := r.Body; len(body) > 0; {
				v, err := record.Parse(body)
				if err != nil || !v.CheckCRC() || string(v.Topic()) != "doomed" {
					t.Errorf("delivered: %v %s", err, v.Topic())
					return false
				}
				pulled.Add(1)
				body = body[v.TotalSize():]
			}
			return true
		})
	}
	rounds := 60
	if testing.Short() {
		rounds = 10
	}
	for round := range rounds {
		before := sent.Load()
		eventually(t, func() bool { return sent.Load() > before+20 })
		r := admin.call(remoting.DeleteTopicInBroker, &protocol.DeleteTopicRequest{Topic: "doomed"}, nil)
		if r.Code != remoting.Success {
			t.Fatalf("deletion %d: %v %s", round, r.Code, r.Remark)
		}
	}
	cancel()
	wg.Wait()
	r := admin.call(remoting.DeleteTopicInBroker, &protocol.DeleteTopicRequest{Topic: "doomed"}, nil)
	if r.Code != remoting.Success {
		t.Fatalf("last deletion: %v %s", r.Code, r.Remark)
	}
	if pulled.Load() == 0 {
		t.Errorf("sent %d, pulled %d, %d pulls found no topic", sent.Load(), pulled.Load(), refused.Load())
	}
	eventually(t, func() bool {
		_, err := os.Stat(filepath.Join(cluster.Dir(), "consumequeue", "doomed"))
		return os.IsNotExist(err) && mapped(t, "/consumequeue/doomed/", cluster.Dir()) == 0
	})
	if d := admin.pull(pullRequest("doomed", 0, 0, "*", 0)); d.code != remoting.TopicNotExist {
		t.Errorf("pull at the end: %v %s", d.code, d.remark)
	}
	admin.send("other", 0, "served")
}

func callOnce(t *testing.T, pool *invoke.Pool, cluster *enginetest.Cluster, code remoting.RequestCode,
	header remoting.Header, body []byte,
) (*invoke.Response, bool) {
	ctx, cancel := context.WithTimeout(context.Background(), callWithin)
	defer cancel()
	r, err := pool.Call(ctx, cluster.Broker(), &invoke.Request{Code: code, Header: header, Body: body})
	if err != nil {
		t.Errorf("%v: %v", code, err)
		return nil, false
	}
	return r, true
}

// mapped counts this process's mappings of files below dir with a part in their path.
func mapped(t *testing.T, part, dir string) int {
	t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", os.Getpid()))
	if err != nil {
		return 0 // this system does not tell
	}
	n := 0
	for line := range strings.Lines(string(maps)) {
		if strings.Contains(line, dir) && strings.Contains(line, part) {
			n++
		}
	}
	return n
}
