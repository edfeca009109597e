// SPDX-License-Identifier: Apache-2.0

//go:build interop

package interop

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// bigBody is text of 3.9 KB: a body of 4 KiB would be compressed.
func bigBody(name string) string {
	var b strings.Builder
	b.WriteString(name)
	for x := uint32(len(name)) + uint32(name[len(name)-1])*7919; b.Len() < 3900; {
		x = x*1664525 + 1013904223
		fmt.Fprintf(&b, "%08x", x)
	}
	return b.String()
}

// checkBig is checkStored for bodies that nobody wants to see.
func checkBig(t *testing.T, at target, topic string, want map[int][]string) {
	t.Helper()
	got := bodies(pullAll(t, at, topic, 0))
	if len(got) != len(want[0]) {
		t.Fatalf("%d messages, want %d", len(got), len(want[0]))
	}
	for i, body := range got {
		if body != want[0][i] {
			t.Fatalf("message %d is %.40q of %d bytes, want %.40q", i, body, len(body), want[0][i])
		}
	}
}

// fillBig sends enough to a queue of a topic to begin some log files of 256 KiB.
func fillBig(t *testing.T, at target, topic, prefix string, want map[int][]string) {
	t.Helper()
	jvm := java(t)
	p := producer(t, jvm, at, args{"group": name(t, "PG") + prefix, "instance": name(t, "P") + prefix})
	for i := range 150 {
		body := bigBody(fmt.Sprint(prefix, i))
		must[sent](t, jvm, "producer.send", args{
			"handle": p, "topic": topic, "body": body, "keys": fmt.Sprint(prefix, i), "queueId": 0,
			"broker": at.BrokerName,
		})
		want[0] = append(want[0], body)
	}
	run(t, jvm, "producer.stop", args{"handle": p})
}

// A log in several directories goes from our broker to Apache's and back: each finds all files, and
// puts new ones where the other would.
func TestStoreInSeveralDirectories(t *testing.T) {
	t.Parallel()
	jvm := java(t)
	dir, topic := scratch(t), name(t, "T")
	a, b, c := filepath.Join(dir, "log-a"), filepath.Join(dir, "log-b"), filepath.Join(dir, "log-c")
	conf := map[string]string{
		"mappedFileSizeCommitLog": fmt.Sprint(256 << 10), "maxMessageSize": "65536",
		"storePathCommitLog": strings.Join([]string{b, a, c}, ","), "readOnlyCommitLogStorePaths": c,
	}
	if err := os.MkdirAll(c, 0o755); err != nil {
		t.Fatal(err)
	}
	want := map[int][]string{}
	ours, p := startServer(t, dir, conf)
	createTopic(t, ours, topic, 2)
	fillBig(t, ours, topic, "ours", want)
	if err := p.stop(); err != nil {
		t.Fatalf("stop: %v\n%s", err, p.output())
	}
	// The first file goes to the directory in which none is made.
	first := strings.Repeat("0", 20)
	if err := os.Rename(filepath.Join(a, first), filepath.Join(c, first)); err != nil {
		t.Fatal(err)
	}

	theirs := target{
		NameServer: address(ports(t)), Broker: address(ports(t)), BrokerName: ours.BrokerName, Dir: dir,
	}
	open(t, jvm, "namesrv", args{"port": port(theirs.NameServer), "dir": scratch(t)})
	broker := open(t, jvm, "broker", args{
		"port": port(theirs.Broker), "dir": dir, "namesrv": theirs.NameServer, "conf": conf,
	})
	waitForRoute(t, theirs.NameServer, topic)
	checkBig(t, theirs, topic, want)
	fillBig(t, theirs, topic, "theirs", want)
	run(t, jvm, "broker.stop", args{"handle": broker})

	again, p := startServer(t, dir, conf)
	waitForRoute(t, again.NameServer, topic)
	checkBig(t, again, topic, want)
	fillBig(t, again, topic, "again", want)
	checkBig(t, again, topic, want)
	_ = p.cmd.Process.Kill()
	<-p.done
	for i, next := 0, 0; ; i++ {
		file := fmt.Sprintf("%020d", i*(256<<10))
		at := []string{a, b}[i%2]
		if i == 0 {
			at = c
		}
		if _, err := os.Stat(filepath.Join(at, file)); err == nil {
			next++
			continue
		}
		if next < 6 {
			t.Errorf("%s is not in %s; there are %d files in their turns", file, at, next)
		}
		break
	}
	// The killed one once more to Apache.
	broker = open(t, jvm, "broker", args{
		"port": port(theirs.Broker), "dir": dir, "namesrv": theirs.NameServer, "conf": conf,
	})
	eventually(t, 20*time.Second, func() error { return routeOf(theirs.NameServer, topic, time.Second) })
	checkBig(t, theirs, topic, want)
	run(t, jvm, "broker.stop", args{"handle": broker})
}
