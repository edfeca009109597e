// SPDX-License-Identifier: Apache-2.0

//go:build interop

package interop

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// takeoverWait is how long what waits has to wait in the tests of take-overs: a little longer than it
// takes to make it wait and to end the broker.
const takeoverWait = 8 * time.Second

var takeoverConf = map[string]string{
	"messageDelayLevel": "1s 1s 8s 8s 8s", "recallMessageEnable": "true", "enablePropertyFilter": "true",
	"transactionTimeOut": "8000", "transactionCheckInterval": "1000", "traceTopicEnable": "true",
	"flushConsumerOffsetInterval": "1000", "mappedFileSizeCommitLog": strconv.Itoa(8 << 20),
	"mappedFileSizeTimerLog": strconv.Itoa(1 << 20),
}

// takeover is a store that changes hands while Apache's Java clients work on it, and all that they were
// told. Names of its topics and groups begin with base.
type takeover struct {
	t    *testing.T
	jvm  *driver
	at   target
	base string
	turn int

	// Clients that stay at work through all turns.
	producer, tx, tracer, admin, orderly, filtering, retrying string

	plain, order, priced, delayed, half []string // bodies, as sent or as they have to come
	refused                             []string // were given back once
	out                                 []string // were popped in the last turn and not acknowledged
	known                               []sent   // to be found by key and ids, one of each turn
	traced                              []string // ids of messages
	scheduled, replies                  int
	asked                               chan error // a request that was made in the last turn
}

func (k *takeover) topic(kind string) string { return "T_" + k.base + "_" + kind }
func (k *takeover) group(kind string) string { return "G_" + k.base + "_" + kind }

// A store goes from our broker to Apache's and back, twice: after our death, after Apache's stop, after
// our stop, and as Apache's death leaves it. Every kind of message waits, and every service is in the
// middle of something, whenever it does; each broker carries on what the other left, and the clients,
// which are Apache's, see another broker behind the same address.
func TestTakeOver(t *testing.T) {
	t.Parallel()
	if *against != "skylark" {
		t.Skip("uses both kinds anyway")
	}
	k := &takeover{t: t, jvm: java(t), base: name(t, "S"), at: target{
		NameServer: address(ports(t)), Broker: address(ports(t)), BrokerName: "broker-a", Dir: scratch(t),
	}}
	open(t, k.jvm, "namesrv", args{"port": port(k.at.NameServer), "dir": scratch(t)})
	began := time.Now()
	for i, h := range []hand{
		{skylarkHolder, true},
		{insideHolder, false},
		{skylarkHolder, false},
		{insideHolder, true},
		{skylarkHolder, false},
	} {
		k.turn = i
		broker := h.run(t, k.at, takeoverConf)
		waitForRoute(t, k.at.NameServer, "SELF_TEST_TOPIC")
		started := time.Since(began)
		if i == 0 {
			k.begin()
		} else {
			k.check()
		}
		checked := time.Since(began)
		if i < 4 {
			k.pend()
		}
		if t.Failed() {
			t.Fatalf("turn %d, %v:\n%s", i, h, broker.text())
		}
		pending := time.Since(began)
		k.end(broker, h)
		t.Logf("turn %d, %v: answers after %.1f s, all is found after %.1f s, pending after %.1f s, over after %.1f s",
			i, h, started.Seconds(), checked.Seconds(), pending.Seconds(), time.Since(began).Seconds())
	}
}

// end ends the broker. Apache's lives in the process of all clients, so that its death is an image of the
// store, taken while it is at work.
func (k *takeover) end(broker *held, h hand) {
	k.t.Helper()
	early := 0
	for _, body := range k.stored("delayed") {
		if _, turn := parted(body); turn == k.turn {
			early++
		}
	}
	if early > 0 {
		k.t.Logf("turn %d: %d delayed messages are due already", k.turn, early)
	}
	if h.kill && broker.kill == nil {
		image := scratch(k.t)
		copyLive(k.t, k.at.Dir, image)
		k.at.Dir, h.kill = image, false
	}
	if err := broker.end(h.kill); err != nil {
		k.t.Fatalf("turn %d, end of %v: %v\n%s", k.turn, h, err, broker.text())
	}
}

// body is the text of a message of this turn.
func (k *takeover) body(kind string, i int) string { return fmt.Sprintf("%s-%d-%02d", kind, k.turn, i) }

// parted is what body made a text of.
func parted(body string) (kind string, turn int) {
	kind, rest, _ := strings.Cut(body, "-")
	turn = -1
	_, _ = fmt.Sscanf(rest, "%d-", &turn)
	return kind, turn
}

// pull asks by hand for the messages of a queue from an offset on: a client would be slow to make.
func (k *takeover) pull(topic string, queueID int) []recordSummary {
	k.t.Helper()
	c, err := dialRaw(k.at.Broker)
	if err != nil {
		k.t.Fatal(err)
	}
	defer c.close()
	const pullMessage, found = 11, 0
	var list []recordSummary
	for offset := "0"; ; {
		a, err := c.call(pullMessage, map[string]string{
			"consumerGroup": k.group("reader"), "topic": topic, "queueId": strconv.Itoa(queueID),
			"queueOffset": offset, "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0",
			"suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0", "expressionType": "TAG",
		}, nil, 10*time.Second)
		if err != nil {
			k.t.Fatal(err)
		}
		if a.Code != found {
			return list
		}
		part, err := summarize(a.Body)
		if err != nil {
			k.t.Fatal(err)
		}
		list, offset = append(list, part...), a.ExtFields["nextBeginOffset"]
	}
}

// stored are the bodies in a topic of one queue.
func (k *takeover) stored(kind string) (list []string) {
	k.t.Helper()
	for _, m := range k.pull(k.topic(kind), 0) {
		list = append(list, m.Body)
	}
	return list
}

// awaitStored waits until a topic of one queue has these, of which some may be there twice.
func (k *takeover) awaitStored(kind string, want []string) {
	k.t.Helper()
	eventually(k.t, 60*time.Second, func() error {
		err := sameSet(k.stored(kind), want)
		if err != nil {
			err = fmt.Errorf("turn %d, %s: %w", k.turn, kind, err)
		}
		return err
	})
}

// length is the end of a queue.
func (k *takeover) length(topic string, queueID int) int {
	k.t.Helper()
	const getMaxOffset = 30
	a := rawCall(k.t, k.at, getMaxOffset, map[string]string{"topic": topic, "queueId": strconv.Itoa(queueID)}, nil)
	n, _ := strconv.Atoi(a.ExtFields["offset"])
	return n
}

// got is what a push consumer has had so far.
func (k *takeover) got(consumer string) []received {
	k.t.Helper()
	return awaitPush(k.t, k.jvm, consumer, 0, 1)
}

// copyLive copies a store whose broker is at work, once what Apache's broker keeps in memory for up to
// a second is in its files: the wheel (timerFlushIntervalMs) and the positions of groups
// (flushConsumerOffsetInterval).
func copyLive(t *testing.T, from, to string) {
	t.Helper()
	began := map[string]time.Time{"timerwheel": {}, "config/consumerOffset.json": {}}
	for name := range began {
		info, err := os.Stat(filepath.Join(from, name))
		if err != nil {
			t.Fatal(err)
		}
		began[name] = info.ModTime()
	}
	eventually(t, 20*time.Second, func() error {
		for name, at := range began {
			now, err := os.Stat(filepath.Join(from, name))
			if err == nil && !now.ModTime().After(at) {
				err = fmt.Errorf("%s was not written since %v", name, at)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o755)
		}
		if err = copyFile(path, filepath.Join(to, rel)); errors.Is(err, fs.ErrNotExist) {
			err = nil // the new form of a table, which has its name by now
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// begin makes topics, groups and clients.
func (k *takeover) begin() {
	k.t.Helper()
	k.admin = open(k.t, k.jvm, "admin", args{"namesrv": k.at.NameServer})
	for kind, queues := range map[string]int{
		"plain": 1, "delayed": 1, "half": 1, "refused": 1, "popped": 1, "order": 2, "priced": 1, "asked": 1,
		"traced": 1,
	} {
		k.createTopic(kind, queues)
	}
	k.producer = producer(k.t, k.jvm, k.at, nil)
	k.tracer = producer(k.t, k.jvm, k.at, args{"group": k.group("tracer"), "instance": k.group("T"), "trace": true})
	k.tx = transactional(k.t, k.at, nil)
	push := func(kind string, extra args) string {
		a := args{
			"namesrv": k.at.NameServer, "group": k.group(kind), "topic": k.topic(kind), "instance": k.group(kind),
		}
		maps.Copy(a, extra)
		return open(k.t, k.jvm, "push", a)
	}
	// Each message is refused once: those in order come again at their place, a tenth of a second later.
	k.orderly = push("order", args{"orderly": true, "failures": 1})
	k.filtering = push("priced", args{"sql": pricedSQL})
	k.retrying = push("refused", args{"failures": 1})
}

func (k *takeover) createTopic(kind string, queues int) {
	k.t.Helper()
	run(k.t, k.jvm, "admin.createTopic", args{
		"handle": k.admin, "address": k.at.Broker, "topic": k.topic(kind), "queues": queues,
	})
	waitForRoute(k.t, k.at.NameServer, k.topic(kind))
}

// finds looks a message up by a key.
func (k *takeover) finds(topic, key string) {
	k.t.Helper()
	eventually(k.t, 30*time.Second, func() error {
		var f found
		err := k.jvm.do("admin.byKey", args{"handle": k.admin, "topic": topic, "key": key}, &f)
		if err == nil && len(f.Messages) == 0 {
			err = fmt.Errorf("nothing")
		}
		if err != nil {
			err = fmt.Errorf("turn %d, key %s of %s: %w", k.turn, key, topic, err)
		}
		return err
	})
}

// repeated tells which of a list are there twice.
func repeated(list []string) []string {
	sorted := slices.Sorted(slices.Values(list))
	var twice []string
	for i := 1; i < len(sorted); i++ {
		if sorted[i] == sorted[i-1] {
			twice = append(twice, sorted[i])
		}
	}
	return twice
}
