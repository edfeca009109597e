// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/engine"
	"github.com/skylarkmq/skylark/engine/enginetest"
	"github.com/skylarkmq/skylark/net/remoting"
)

// unpackStore puts the store of an archive into dir.
func unpackStore(t *testing.T, archive, dir string) {
	t.Helper()
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		name, inside := strings.CutPrefix(filepath.Clean(h.Name), "store/")
		if !inside || h.Typeflag == tar.TypeDir {
			continue
		}
		path := filepath.Join(dir, filepath.Clean("/"+name))
		text, err := io.ReadAll(r)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(path), 0o755)
		}
		if err == nil {
			err = os.WriteFile(path, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// A store of RocketMQ 5.5.0 is carried on: 11 messages lie in the retry topic of a group, one that was
// kept for longer is still out by its checkpoint in the timer, and an ordered group has acknowledged
// the first of three.
func TestE2EPopStoreOfRocketMQ(t *testing.T) {
	t.Parallel()
	cluster := enginetest.Start(t, func(c *engine.Config) {
		c.CommitLogFileSize, c.QueueFileSize, c.TimerLogFileSize = 1<<20, 4000, 4096
		c.IndexSlots, c.IndexEntries, c.MaxMessageSize = 101, 1000, 1<<18
		unpackStore(t, "../storage/testdata/vectors/pop.tar.gz", c.StoreRoot)
	})
	p := newPeer(t, cluster.Broker())
	var got []string
	for len(got) < 12 {
		d := p.pop(popRequest("PopTopic", "GID_pop", time.Minute, 3*time.Second))
		if d.code != remoting.Success {
			t.Fatalf("after %d messages: %v %q", len(got), d.code, d.remark)
		}
		for _, v := range d.views {
			got = append(got, string(v.Topic()))
			if v.ReconsumeTimes() < 1 {
				t.Errorf("message of queue %d at %d was not popped before", v.QueueID(), v.QueueOffset())
			}
		}
		p.ack(d.receipts(t)...)
	}
	if slices.ContainsFunc(got, func(topic string) bool { return topic != "PopTopic" }) || len(got) != 12 {
		t.Errorf("topics %v", got)
	}
	if d := p.pop(popRequest("PopTopic", "GID_pop", time.Minute, 0)); len(d.views) > 0 {
		t.Errorf("%d more", len(d.views))
	}
	order := true
	r := popRequest("PopOrder", "GID_order", time.Minute, 0)
	r.Order = &order
	d := p.pop(r)
	if len(d.views) == 0 || d.views[0].QueueOffset() != 1 || d.head.OrderCountInfo == "" {
		t.Errorf("ordered: %v, %d messages, %+v", d.code, len(d.views), d.head)
	}
}
