// SPDX-License-Identifier: Apache-2.0

//go:build interop

package interop

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// checkStored pulls the two queues of a topic and compares bodies and offsets.
func checkStored(t *testing.T, at target, topic string, want map[int][]string) {
	t.Helper()
	for q, list := range want {
		got := pullAll(t, at, topic, q)
		if fmt.Sprint(bodies(got)) != fmt.Sprint(list) {
			t.Errorf("queue %d holds %v, want %v", q, bodies(got), list)
		}
		for i, m := range got {
			if m.QueueOffset != int64(i) {
				t.Errorf("queue %d: message %d has offset %d", q, i, m.QueueOffset)
			}
		}
	}
}

// fillStore sends to both queues of a new topic and commits an offset; more says what to append to.
func fillStore(t *testing.T, at target, topic, prefix string, want map[int][]string) {
	t.Helper()
	jvm := java(t)
	p := producer(t, jvm, at, args{"group": name(t, "PG") + prefix, "instance": name(t, "P") + prefix})
	for i := range 10 {
		body := fmt.Sprint(prefix, i)
		must[sent](t, jvm, "producer.send", args{
			"handle": p, "topic": topic, "body": body, "keys": body, "tags": "Tag" + prefix,
			"queueId": i % 2, "broker": at.BrokerName,
		})
		want[i%2] = append(want[i%2], body)
	}
	run(t, jvm, "producer.stop", args{"handle": p})
}

func storeOffset(t *testing.T, at target, topic, group string, queueID int, offset int64) {
	t.Helper()
	jvm := java(t)
	c := open(t, jvm, "pull", args{"namesrv": at.NameServer, "group": group, "instance": name(t, "O") + fmt.Sprint(offset)})
	place := args{"handle": c, "topic": topic, "broker": at.BrokerName, "queueId": queueID, "offset": offset}
	eventually(t, 10*time.Second, func() error {
		run(t, jvm, "pull.store", place) // one way: it may be on its way still
		if got := must[int64](t, jvm, "pull.stored", place); got != offset {
			return fmt.Errorf("stored offset %d", got)
		}
		return nil
	})
	run(t, jvm, "pull.stop", args{"handle": c})
}

// storedOffset asks without a client, since one would join the group and be given queues.
func storedOffset(t *testing.T, at target, topic, group string, queueID int) int64 {
	t.Helper()
	c, err := dialRaw(at.Broker)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	const queryConsumerOffset = 14
	a, err := c.call(queryConsumerOffset, map[string]string{
		"consumerGroup": group, "topic": topic, "queueId": strconv.Itoa(queueID),
	}, nil, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	offset, err := strconv.ParseInt(a.ExtFields["offset"], 10, 64)
	if err != nil {
		return -1
	}
	return offset
}

func checkKey(t *testing.T, at target, topic, key string) {
	t.Helper()
	jvm := java(t)
	admin := open(t, jvm, "admin", args{"namesrv": at.NameServer})
	eventually(t, 20*time.Second, func() error {
		var f found
		err := jvm.do("admin.byKey", args{"handle": admin, "topic": topic, "key": key}, &f)
		if err == nil && (len(f.Messages) != 1 || f.Messages[0].Body != key) {
			err = fmt.Errorf("key %s found %v", key, bodies(f.Messages))
		}
		return err
	})
}

// One store directory goes from our broker to Apache's and back: messages, topics, offsets and the
// index stay, and each goes on where the other stopped.
func TestStoreMovesBetweenBrokers(t *testing.T) {
	t.Parallel()
	jvm := java(t)
	dir, topic, group := scratch(t), name(t, "T"), name(t, "CG")
	const segment = 8 << 20
	conf := map[string]string{"mappedFileSizeCommitLog": strconv.Itoa(segment)}
	want := map[int][]string{}

	ours, p := startServer(t, dir, conf)
	createTopic(t, ours, topic, 2)
	fillStore(t, ours, topic, "ours", want)
	storeOffset(t, ours, topic, group, 0, 3)
	if err := p.stop(); err != nil {
		t.Fatalf("stop: %v\n%s", err, p.output())
	}

	theirs := target{
		NameServer: address(ports(t)), Broker: address(ports(t)), BrokerName: ours.BrokerName, Dir: dir,
	}
	open(t, jvm, "namesrv", args{"port": port(theirs.NameServer), "dir": scratch(t)})
	broker := open(t, jvm, "broker", args{
		"port": port(theirs.Broker), "dir": dir, "namesrv": theirs.NameServer, "conf": conf,
	})
	waitForRoute(t, theirs.NameServer, topic)
	checkStored(t, theirs, topic, want)
	if got := storedOffset(t, theirs, topic, group, 0); got != 3 {
		t.Errorf("Apache's broker has offset %d of the group, want 3", got)
	}
	checkKey(t, theirs, topic, "ours4")
	fillStore(t, theirs, topic, "theirs", want)
	storeOffset(t, theirs, topic, group, 0, 7)
	run(t, jvm, "broker.stop", args{"handle": broker})

	again, p := startServer(t, dir, conf)
	waitForRoute(t, again.NameServer, topic)
	checkStored(t, again, topic, want)
	if got := storedOffset(t, again, topic, group, 0); got != 7 {
		t.Errorf("our broker has offset %d of the group, want 7\n%s", got, p.output())
	}
	checkKey(t, again, topic, "ours4")
	checkKey(t, again, topic, "theirs4")
	fillStore(t, again, topic, "again", want)
	checkStored(t, again, topic, want)
}

// A killed broker loses nothing that a client may still ask for: the kernel has the written pages.
func TestRestartAfterKill(t *testing.T) {
	t.Parallel()
	dir, topic := scratch(t), name(t, "T")
	want := map[int][]string{}
	at, p := startServer(t, dir, nil)
	createTopic(t, at, topic, 2)
	fillStore(t, at, topic, "before", want)
	_ = p.cmd.Process.Kill()
	<-p.done
	second := at.start(t, skylark(t), nil)
	defer func() { _ = second.stop() }()
	checkStored(t, at, topic, want)
	fillStore(t, at, topic, "after", want)
	checkStored(t, at, topic, want)
	checkKey(t, at, topic, "before4")
}

// A consumer goes on at its committed offset after the broker was restarted on the same port.
func TestRestartKeepsOffsets(t *testing.T) {
	t.Parallel()
	jvm := java(t)
	dir, topic, group := scratch(t), name(t, "T"), name(t, "CG")
	at, p := startServer(t, dir, nil)
	createTopic(t, at, topic, 2)
	prod := producer(t, jvm, at, nil)
	first := many(t, jvm, prod, topic, "first", 10)
	c := open(t, jvm, "push", args{"namesrv": at.NameServer, "group": group, "topic": topic})
	if err := sameSet(bodies(awaitPush(t, jvm, c, 10, 20_000)), first); err != nil {
		t.Fatal(err)
	}
	eventually(t, 20*time.Second, func() error { // it commits each second
		for q := range 2 {
			if got := storedOffset(t, at, topic, group, q); got != 5 {
				return fmt.Errorf("queue %d is at offset %d", q, got)
			}
		}
		return nil
	})
	run(t, jvm, "push.stop", args{"handle": c})
	if err := p.stop(); err != nil {
		t.Fatalf("stop: %v\n%s", err, p.output())
	}
	restarted := at.start(t, skylark(t), nil)
	defer func() { _ = restarted.stop() }()
	var second []string
	eventually(t, 30*time.Second, func() error { // the producer finds its broker again
		var r sent
		body := fmt.Sprint("second", len(second))
		err := jvm.do("producer.send", args{"handle": prod, "topic": topic, "body": body}, &r)
		if err == nil {
			second = append(second, body)
		}
		return err
	})
	second = append(second, many(t, jvm, prod, topic, "more", 5)...)
	c = open(t, jvm, "push", args{"namesrv": at.NameServer, "group": group, "topic": topic, "instance": name(t, "again")})
	got := bodies(awaitPush(t, jvm, c, len(second), 20_000))
	if err := sameSet(got, second); err != nil {
		t.Errorf("after the restart: %v", err)
	}
}

// A store directory has one owner, of whatever kind; the second is refused and told why.
func TestStoreHasOneOwner(t *testing.T) {
	t.Parallel()
	jvm := java(t)
	t.Run("theirs on ours", func(t *testing.T) {
		t.Parallel()
		dir := scratch(t)
		startServer(t, dir, nil)
		err := jvm.do("broker.start", args{
			"port": ports(t), "dir": dir, "namesrv": address(ports(t)), "conf": args{"brokerName": "broker-j"},
		}, nil)
		if err == nil {
			t.Fatal("Apache's broker started on a store that ours holds")
		}
	})
	t.Run("ours on theirs", func(t *testing.T) {
		t.Parallel()
		dir := scratch(t)
		broker := open(t, jvm, "broker", args{
			"port": ports(t), "dir": dir, "namesrv": address(ports(t)), "conf": args{"brokerName": "broker-j"},
		})
		defer run(t, jvm, "broker.stop", args{"handle": broker})
		refusedWith(t, dir, strconv.Itoa(jvm.cmd.Process.Pid))
	})
	t.Run("ours on ours", func(t *testing.T) {
		t.Parallel()
		dir := scratch(t)
		_, p := startServer(t, dir, nil)
		refusedWith(t, dir, strconv.Itoa(p.cmd.Process.Pid))
	})
}

// refusedWith starts a second server on dir, which must end with 1 and name the directory and its holder.
func refusedWith(t *testing.T, dir, holder string) {
	t.Helper()
	p := start(t, "server", "--data", dir, "--name-server-listen", address(ports(t)), "--broker-listen", address(ports(t)))
	code := p.ended(t, 15*time.Second)
	if code != 1 || !strings.Contains(p.output(), holder) || !strings.Contains(p.output(), dir) {
		t.Errorf("exit code %d, want 1 and a word of %s held by %s:\n%s", code, dir, holder, p.output())
	}
	if _, err := os.Stat(filepath.Join(dir, "lock")); err != nil {
		t.Error(err)
	}
}
