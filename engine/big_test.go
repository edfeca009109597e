// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"bytes"
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/engine"
	"github.com/skylarkmq/skylark/engine/enginetest"
	"github.com/skylarkmq/skylark/net/invoke"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage/record"
)

// With maxMessageSize at its greatest a message of 64 MiB goes in and comes out as it was, by pull and
// by pop; one byte more is refused with 13, and the connection stays.
func TestE2EBigMessage(t *testing.T) {
	t.Parallel()
	const most = 64 << 20
	cluster := enginetest.Start(t, func(c *engine.Config) {
		c.MaxMessageSize, c.CommitLogFileSize = most, 192<<20
	})
	pool := invoke.NewPool(invoke.Config{MaxFrame: most + 2<<20})
	t.Cleanup(func() { _ = pool.Close() })
	call := func(code remoting.RequestCode, h remoting.Header, body []byte) *invoke.Response {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		r, err := pool.Call(ctx, cluster.Broker(), &invoke.Request{Code: code, Header: h, Body: body})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := call(remoting.SendMessageV2, sendRequest("big", 0), []byte("first")); r.Code != remoting.Success {
		t.Fatalf("%v %q", r.Code, r.Remark)
	}
	body := make([]byte, most)
	seed := rand.NewChaCha8([32]byte{1})
	_, _ = seed.Read(body)
	if r := call(remoting.SendMessageV2, sendRequest("big", 0), body); r.Code != remoting.Success {
		t.Fatalf("64 MiB: %v %q", r.Code, r.Remark)
	}
	r := call(remoting.SendMessageV2, sendRequest("big", 0), make([]byte, most+1))
	if r.Code != remoting.MessageIllegal {
		t.Errorf("a byte more: %v %q", r.Code, r.Remark)
	}
	same := func(what string, answer []byte) {
		t.Helper()
		v, err := record.Parse(answer)
		if err != nil || !bytes.Equal(v.Body(), body) || !v.CheckCRC() {
			t.Errorf("%s: %d bytes, %v", what, len(answer), err)
		}
	}
	same("pull", call(remoting.PullMessage, pullRequest("big", 0, 1, "*", 0), nil).Body)
	first := call(remoting.PopMessage, popRequest("big", "g", time.Minute, 0), nil)
	if size, _, ok := record.PeekSize(first.Body); ok && int(size) < len(first.Body) {
		same("pop", first.Body[size:])
	} else {
		same("pop", call(remoting.PopMessage, popRequest("big", "g", time.Minute, 0), nil).Body)
	}
}
