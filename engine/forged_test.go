// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/engine/enginetest"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

// forgedTimer writes a record of the timer topic as a client can.
func forgedTimer(p *peer, topic, queue, body string) {
	p.t.Helper()
	p.send(protocol.TimerTopic, 0, body, "REAL_TOPIC", topic, "REAL_QID", queue, "TIMER_OUT_MS",
		strconv.FormatInt(time.Now().Add(300*time.Millisecond).UnixMilli(), 10))
}

// TestForgedTimerMakesNoQueue: a client may write records of the timer topic itself. What they say makes
// neither topics nor queues that the configuration does not have; a message for a queue that the topic
// does not have comes in one that it has.
func TestForgedTimerMakesNoQueue(t *testing.T) {
	t.Parallel()
	log := &journal{}
	cluster := enginetest.Start(t, logTo(log))
	p := newPeer(t, cluster.Broker())
	p.send("real", 0, "hello") // has four queues
	forgedTimer(p, "nowhere", "0", "lost")
	forgedTimer(p, "../../escape", "0", "lost")
	forgedTimer(p, "%RETRY%nobody", "0", "lost")
	forgedTimer(p, "real", "1000001", "folded")
	forgedTimer(p, "real", "3", "right")
	deadline := time.Now().Add(10 * time.Second)
	var got []string
	for len(got) < 2 && time.Now().Before(deadline) {
		got = got[:0]
		for queue := range int32(4) {
			for _, v := range p.pull(pullRequest("real", queue, 0, "*", 50*time.Millisecond)).views {
				if string(v.Body()) != "hello" {
					got = append(got, strconv.Itoa(int(queue))+" "+string(v.Body()))
				}
			}
		}
	}
	if text := strings.Join(got, ","); text != "1 folded,3 right" {
		t.Errorf("delivered %q", text)
	}
	dirs, err := os.ReadDir(filepath.Join(cluster.Dir(), "consumequeue"))
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		if dir.Name() == "nowhere" || strings.HasPrefix(dir.Name(), "%RETRY%nobody") {
			t.Errorf("queues of %s were made", dir.Name())
		}
	}
	if _, err := os.Stat(filepath.Join(cluster.Dir(), "consumequeue", "real", "1000001")); err == nil {
		t.Error("queue 1000001 was made")
	}
	if len(log.lines("cannot be delivered", "not there")) < 2 {
		t.Errorf("the log does not say what was not delivered: %q", log.lines("timer"))
	}
}

// TestForgedLightQueueMakesNoQueue: the properties by which RocketMQ puts a record into light queues are
// a client's to write, and a start after a crash makes no queue of them, and moves none.
func TestForgedLightQueueMakesNoQueue(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	v := startVictim(t, dir, "ASYNC_FLUSH")
	p := newPeer(t, v.addr)
	p.send("other", 0, "one")
	p.send("real", 0, "two", "INNER_MULTI_DISPATCH", "other,made,%LMQ%x", "INNER_MULTI_QUEUE_OFFSET", "0,0,0")
	p.send("real", 0, "three", "INNER_MULTI_DISPATCH", "other", "INNER_MULTI_QUEUE_OFFSET", "1")
	v.end(t, true)
	v = startVictim(t, dir, "ASYNC_FLUSH")
	defer v.end(t, false)
	p = newPeer(t, v.addr)
	d := p.pull(pullRequest("other", 0, 0, "*", 0))
	if d.code != remoting.Success || d.bodies() != "one" || d.head.MaxOffset != 1 {
		t.Errorf("other: %v %q, end %d", d.code, d.bodies(), d.head.MaxOffset)
	}
	for _, name := range []string{"made", "%LMQ%x"} {
		if _, err := os.Stat(filepath.Join(dir, "consumequeue", name)); err == nil {
			t.Errorf("queues of %s were made", name)
		}
	}
}
