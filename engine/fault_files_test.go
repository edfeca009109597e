// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/net/invoke"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage"
)

// try is call for requests that may end their connection.
func (p *peer) try(code remoting.RequestCode, header remoting.Header, body []byte) (*invoke.Response, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callWithin)
	defer cancel()
	return p.pool.Call(ctx, p.addr, &invoke.Request{Code: code, Header: header, Body: body})
}

// TestFaultFilesCut cuts files beneath a running broker. What touches the missing bytes fails, with
// an answer or by the end of its connection; everything else goes on.
func TestFaultFilesCut(t *testing.T) {
	t.Parallel()
	var log journal
	cfg := quietConfig(t)
	cfg.CommitLogFileSize, cfg.MaxMessageSize = 1<<20, 1<<17
	logTo(&log)(&cfg)
	b := startBroker(t, cfg)
	p := newPeer(t, b.Addr().String())
	body := strings.Repeat("x", 30<<10)
	first := p.send("cut", 0, "small", "KEYS", "k1", "a", "1")
	for range 80 {
		p.send("cut", 0, body, "KEYS", "k2", "a", "1")
	}
	last := p.send("whole", 0, "whole")
	files, err := filepath.Glob(filepath.Join(cfg.StoreRoot, "commitlog", "*"))
	if err != nil || len(files) < 3 {
		t.Fatalf("files %v: %v", files, err)
	}
	if err := os.Truncate(files[0], 0); err != nil {
		t.Fatal(err)
	}
	refused := func(what string, r *invoke.Response, err error) {
		t.Helper()
		if err == nil && r.Code == remoting.Success {
			t.Errorf("%s of bytes that are gone: %v, %d bytes", what, r.Code, len(r.Body))
		}
	}
	for _, n := range []int32{1, 8, 32} {
		r := pullRequest("cut", 0, 0, "*", 0)
		r.MaxMessages = n
		res, err := newPeer(t, p.addr).try(remoting.PullMessage, r, nil)
		refused("pull", res, err)
	}
	r := pullRequest("cut", 0, 0, "", 0)
	r.Subscription, r.ExpressionType = []byte("a = 1"), []byte("SQL92")
	res, err := newPeer(t, p.addr).try(remoting.PullMessage, r, nil)
	refused("filtered pull", res, err)
	at, err := strconv.ParseInt(string(first.MsgID[len(first.MsgID)-16:]), 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	res, err = p.try(remoting.ViewMessageByID, &protocol.ViewMessageRequest{Offset: at}, nil)
	refused("view", res, err)
	res, err = p.try(remoting.PopMessage, popRequest("cut", "g", time.Minute, 0), nil)
	if err == nil && res.Code == remoting.Success && len(res.Body) > 0 {
		t.Errorf("popped %d bytes that are gone", len(res.Body))
	}
	p.lag("g", "cut")

	if d := p.pull(pullRequest("whole", 0, last.QueueOffset, "*", 0)); d.bodies() != "whole" {
		t.Errorf("another file: %v %s", d.code, d.remark)
	}
	if d := p.pull(pullRequest("cut", 0, 79, "*", 0)); d.code != remoting.Success {
		t.Errorf("the same queue in another file: %v %s", d.code, d.remark)
	}
	p.send("whole", 0, "more")

	// The file that is written to: sends are refused with a reason, reads go on.
	end := int64(b.StoreInfo().Wrote)
	tail := files[end/cfg.CommitLogFileSize]
	if err := os.Truncate(tail, end%cfg.CommitLogFileSize/4096*4096+4096); err != nil {
		t.Fatal(err)
	}
	s := p.call(remoting.SendMessageV2, sendRequest("whole", 0), []byte(body))
	if s.Code != remoting.ServiceNotAvailable || !strings.Contains(s.Remark, storage.ErrReadOnly.Error()) {
		t.Errorf("send into a file that was cut: %v %s", s.Code, s.Remark)
	}
	if d := p.pull(pullRequest("whole", 0, last.QueueOffset, "*", 0)); d.bodies() != "whole more" {
		t.Errorf("reading after it: %v %s", d.code, d.remark)
	}
	if len(log.lines("read-only until the next start")) == 0 {
		t.Error("the log does not say that nothing is taken any more")
	}
}

// TestFaultCopiesAreNamed damages a file that has a valid backup: the log says which was read.
func TestFaultCopiesAreNamed(t *testing.T) {
	t.Parallel()
	var log journal
	cfg := quietConfig(t)
	logTo(&log)(&cfg)
	dir := filepath.Join(cfg.StoreRoot, "config")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{
		"messageRequestMode.json": `{"messageRequestModeMap":{}}`,
		"consumerFilter.json":     `{"filterDataByTopic":{}}`,
		"consumerOrderInfo.json":  `{"table":{}}`,
		"topics.json":             `{"topicConfigTable":{}}`,
		"subscriptionGroup.json":  `{"subscriptionGroupTable":{}}`,
		"consumerOffset.json":     `{"offsetTable":{}}`,
		"delayOffset.json":        `{"offsetTable":{}}`,
	}
	for name, text := range files {
		for path, text := range map[string]string{name: "", name + ".bak": text} {
			if err := os.WriteFile(filepath.Join(dir, path), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	startBroker(t, cfg)
	for name := range files {
		if len(log.lines(filepath.Join(dir, name+".bak"))) == 0 {
			t.Errorf("the log does not name the copy of %s", name)
		}
	}
}
