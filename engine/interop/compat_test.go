// SPDX-License-Identifier: Apache-2.0

//go:build interop

package interop

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/engine/interop/apache"
)

// `make compat-store` sets the first; without it the tests of this file run in a shortened form.
var (
	compatFull = flag.Bool("compat", false, "hand stores to and fro ten times, and to and from older releases")
	compatOut  = flag.String("compat-out", "", "file to which the compat tests add a summary line each")
)

// smallFiles makes a store roll: many log files, queue files and index files.
var smallFiles = map[string]string{
	"mappedFileSizeCommitLog": "1048576", "mappedFileSizeConsumeQueue": "4000", "maxHashSlotNum": "1009",
	"maxIndexNum": "1000", "mappedFileSizeTimerLog": "1048576", "maxMessageSize": "262144",
	"enablePropertyFilter": "true", "recallMessageEnable": "true", "waitTimeMillsInSendQueue": "10000",
	"transactionTimeOut": "1000", "transactionCheckInterval": "1000", "transactionCheckMax": "100000",
	"messageDelayLevel": "1s 1s 1s 1s 5s",
}

// hand is one turn of a store directory: who holds it, and how that ends.
type hand struct {
	holder
	kill bool
}

func (h hand) String() string {
	if h.kill {
		return h.name + ", killed"
	}
	return h.name + ", stopped"
}

// A directory that Skylark wrote under every feature, ended by a stop and by a kill, goes to Apache's
// broker and back: each turn finds all that the turns before it were told is stored, at its place, and
// carries on what waits. Between two turns the real store and ours, each on a copy, must read the same.
func TestCompatTurns(t *testing.T) {
	t.Parallel()
	turns := []hand{{skylarkHolder, false}, {insideHolder, false}, {skylarkHolder, true}}
	if *compatFull {
		turns = nil
		for i := range 5 { // ten turns after the first, a kill of each kind in turn
			turns = append(turns, hand{skylarkHolder, i%2 == 1}, hand{apacheHolder(apache.Version), i%2 == 0})
		}
		turns = append(turns, hand{skylarkHolder, false})
	}
	takeTurns(t, turns)
}

// The same with stores that older releases began, with their configuration files, and back to them.
func TestCompatOlder(t *testing.T) {
	t.Parallel()
	if !*compatFull {
		t.Skip("runs with make compat-store: its servers take a minute to start and stop")
	}
	for _, release := range []string{"4.9.4", "5.1.4"} {
		t.Run(release, func(t *testing.T) {
			t.Parallel()
			older := apacheHolder(release)
			takeTurns(t, []hand{
				{older, false},
				{skylarkHolder, false},
				{older, true},
				{skylarkHolder, true},
				{older, false},
				{skylarkHolder, false},
			})
		})
	}
}

// takeTurns hands one directory from each holder to the next.
func takeTurns(t *testing.T, turns []hand) {
	t.Helper()
	jvm := java(t)
	l := &ledger{
		began: time.Now(), turns: turns, t: t, jvm: jvm, conf: maps.Clone(smallFiles), topic: name(t, "T"), placed: map[string]string{},
		at: target{
			NameServer: address(ports(t)), Broker: address(ports(t)), BrokerName: "broker-a", Dir: scratch(t),
		},
	}
	l.timers, l.newest = true, true
	for _, turn := range turns { // 4.9 has neither timers nor pops; 5.1 has no recalls, and resets consumers only
		l.timers = l.timers && !strings.Contains(turn.name, " 4.")
		l.newest = l.newest && l.timers && !strings.Contains(turn.name, " 5.1")
	}
	open(t, jvm, "namesrv", args{"port": port(l.at.NameServer), "dir": scratch(t)})
	records := 0
	for i, turn := range turns {
		l.turn = i
		h := turn.run(t, l.at, l.conf)
		// A broker answers before it is registered; one that was killed is registered all the time.
		waitForRoute(t, l.at.NameServer, "SELF_TEST_TOPIC")
		if i == 0 {
			l.createTopics()
		}
		l.check()
		l.progress("checked; twice by now: %v", l.again)
		if i < len(turns)-1 || turn.kill {
			l.fill()
		}
		if t.Failed() {
			t.Fatalf("turn %d, %v:\n%s", i, turn, h.text())
		}
		l.killed, l.everKilled = turn.kill, l.everKilled || turn.kill
		if err := h.end(turn.kill); err != nil && !turn.kill {
			t.Fatalf("turn %d, end of %v: %v\n%s", i, turn, err, h.text())
		}
		records = sameForBoth(t, l.at.Dir, l.conf, turn.kill)
		if t.Failed() {
			t.Fatalf("turn %d, after %v", i, turn)
		}
		l.progress("turn %d of %d, %v: %d placed messages in their places, %d units the same for both stores",
			i+1, len(turns), turn, len(l.placed), records)
	}
	var names []string
	for _, turn := range turns {
		names = append(names, turn.String())
	}
	summarizeCompat(t, fmt.Sprintf("%s: %d turns in %.0f s (%s)\n  %s\n  %d units at the end, read the same by both",
		t.Name(), len(turns), time.Since(l.began).Seconds(), strings.Join(names, "; "), l.counts(), records))
}

// progress tells a long run's user where it is.
func (l *ledger) progress(format string, a ...any) {
	text := fmt.Sprintf("%s, %.0f s: ", l.t.Name(), time.Since(l.began).Seconds()) + fmt.Sprintf(format, a...)
	l.t.Log(text)
	if *compatFull {
		fmt.Fprintln(os.Stderr, text)
	}
}

var compatLines sync.Mutex // guards the summary's file

func summarizeCompat(t *testing.T, text string) {
	t.Helper()
	t.Log(text)
	if *compatOut == "" {
		return
	}
	compatLines.Lock()
	defer compatLines.Unlock()
	f, err := os.OpenFile(*compatOut, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err == nil {
		_, err = fmt.Fprintln(f, text)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Error(err)
	}
}

// ledger is what the clients of one store were told, and what they have to get yet.
type ledger struct {
	t          *testing.T
	jvm        *driver
	at         target
	conf       map[string]string
	topic      string // the names of the topics begin with it
	began      time.Time
	turn       int
	turns      []hand
	killed     bool // the turn before this one ended so
	everKilled bool
	timers     bool // timers and pops are part of it
	newest     bool // recalls and resets by operators too

	placed map[string]string // "queue offset" of the first topic: what the message's body hashes to

	later   []string // bodies that the second topic must have by the end of the next check
	pending []string // of these, the last turn's, which came too late for it
	tx      []string // bodies that the third topic must have
	refused []string // bodies that the retry group has refused once and not taken
	letters int      // dead letters
	popped  []string // bodies that are out of the popped topic
	acked   []string // of the popped topic
	offset  int64    // of the group on the first topic, queue 0
	reset   int64    // of another, by an operator
	count   map[string]int
	again   map[string]int // deliveries beyond the first, by topic
}

func (l *ledger) counts() string {
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(l.count)) {
		parts = append(parts, kind+" "+strconv.Itoa(l.count[kind]))
	}
	return fmt.Sprintf("%s; lost 0; came twice: %d delayed, %d of transactions, %d popped",
		strings.Join(parts, ", "), l.again["later"], l.again["tx"], l.again["pop"])
}

func (l *ledger) topicOf(kind string) string { return l.topic + "_" + kind }

func (l *ledger) createTopics() {
	for kind, queues := range map[string]int{"plain": 2, "later": 1, "tx": 1, "retry": 1, "dead": 1, "pop": 1} {
		createTopic(l.t, l.at, l.topicOf(kind), queues)
	}
	l.count, l.again = map[string]int{}, map[string]int{}
}
