// SPDX-License-Identifier: Apache-2.0

//go:build interop

package interop

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/engine/sqlfilter/sqlfiltertest"
)

var updateFilters = flag.Bool("update-filters", false,
	"write what Apache's filter answers into engine/sqlfilter/testdata/golden.txt")

const goldenFilters = "../sqlfilter/testdata/golden.txt"

// filterTable asks Apache's filter about each expression and property text.
func filterTable(t *testing.T, expressions, properties []string) []string {
	t.Helper()
	var rows []string
	for part := range slices.Chunk(expressions, 500) {
		rows = append(rows, must[[]string](t, java(t), "filter.table", args{
			"expressions": part, "properties": properties,
		})...)
	}
	return rows
}

// The committed table is what the real classes answer today.
func TestFilterGolden(t *testing.T) {
	t.Parallel()
	g, err := sqlfiltertest.LoadGolden(goldenFilters)
	if err != nil {
		t.Fatal(err)
	}
	rows := filterTable(t, g.Expressions, g.Properties)
	if *updateFilters {
		g.Rows = rows
		if err := g.Save(goldenFilters); err != nil {
			t.Fatal(err)
		}
	}
	for i, e := range g.Expressions {
		if rows[i] != g.Rows[i] {
			t.Errorf("%q: Apache's filter answers %s, the table says %s", e, rows[i], g.Rows[i])
		}
	}
}

// Random expressions, whole ones and broken ones, come out the same in Apache's filter and in ours.
func TestFilterAgainstApache(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	var properties, expressions []string
	for _, set := range sqlfiltertest.Properties() {
		properties = append(properties, sqlfiltertest.PropertyText(set))
	}
	for range 6000 {
		expressions = append(expressions, sqlfiltertest.Random(r, 1+r.IntN(4)).Text())
	}
	for range 6000 {
		expressions = append(expressions, sqlfiltertest.Soup(r))
	}
	rows := filterTable(t, expressions, properties)
	valid := 0
	for i, text := range expressions {
		if rows[i] != "E" {
			valid++
		}
		if got := sqlfiltertest.Row(text, properties); got != rows[i] {
			t.Errorf("%q:\n ours   %s\n apache %s", text, got, rows[i])
		}
	}
	if valid < len(expressions)/10 {
		t.Errorf("only %d of %d expressions are valid", valid, len(expressions))
	}
}

// sendPriced sends count messages with a property price from 0 to 9, in turn, to one queue.
func sendPriced(t *testing.T, producer, topic, prefix string, count int) {
	t.Helper()
	for i := range count {
		must[sent](t, java(t), "producer.send", args{
			"handle": producer, "topic": topic, "body": fmt.Sprint(prefix, i), "tags": "t",
			"properties": args{"price": fmt.Sprint(i % 10), "region": []string{"eu", "us"}[i%2]},
		})
	}
}

const pricedSQL = "price BETWEEN 2.5 AND 5 AND region = 'us' AND NOT (TAGS IS NULL)"

// priced lists the bodies that pricedSQL lets pass.
func priced(prefix string, count int) (out []string) {
	for i := range count {
		if n := i % 10; n == 3 || n == 5 {
			out = append(out, fmt.Sprint(prefix, i))
		}
	}
	return out
}

// Apache's clients filter by SQL92, from heartbeats and from pulls; what arrives later is filtered too.
func TestSQL92Clients(t *testing.T) {
	t.Parallel()
	at, jvm, client := servers(t), java(t), golang(t)
	topic := name(t, "T")
	createTopic(t, at, topic, 1)
	p := producer(t, jvm, at, nil)
	sendPriced(t, p, topic, "early", 50)
	start := args{"namesrv": at.NameServer, "topic": topic, "sql": pricedSQL}
	with := func(group string) args {
		a := maps.Clone(start)
		a["group"], a["instance"] = name(t, group), name(t, "I"+group)
		return a
	}
	push := open(t, jvm, "push", with("push"))
	goPush := open(t, client, "push", with("go"))
	lite := open(t, jvm, "lite", with("lite"))
	want := priced("early", 50)
	check := func(what string, got []received) {
		t.Helper()
		if err := sameSet(bodies(got), want); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	check("push", awaitPush(t, jvm, push, len(want), 30_000))
	check("go", awaitPush(t, client, goPush, len(want), 30_000))
	polled := must[[]received](t, jvm, "lite.poll", args{"handle": lite, "count": len(want)})
	check("lite", polled)
	sendPriced(t, p, topic, "late", 30)
	want = append(want, priced("late", 30)...)
	check("push, late", awaitPush(t, jvm, push, len(want), 30_000))
	check("go, late", awaitPush(t, client, goPush, len(want), 30_000))
	polled = append(polled, must[[]received](t, jvm, "lite.poll", args{
		"handle": lite, "count": len(want) - len(polled),
	})...)
	check("lite, late", polled)

	pull := open(t, jvm, "pull", args{"namesrv": at.NameServer, "group": name(t, "pull"), "instance": name(t, "Ipull")})
	var got pulled
	eventually(t, 20*time.Second, func() error { // its first heartbeat tells it that the broker can filter
		return jvm.do("pull.pull", args{
			"handle": pull, "topic": topic, "broker": at.BrokerName, "queueId": 0, "offset": 0, "sql": pricedSQL,
		}, &got)
	})
	check("pull", got.Messages)
	var refused *driverError
	err := jvm.do("push.start", args{
		"namesrv": at.NameServer, "group": name(t, "bad"), "topic": topic, "sql": "price = = 5", "instance": name(t, "Ibad"),
	}, nil)
	if !errors.As(err, &refused) || !strings.Contains(refused.Message, "price = = 5") && refused.Code != 23 {
		t.Errorf("a broken expression: %v", err)
	}
}

// A store with an SQL92 group goes to Apache's broker and back: each reads the other's
// consumerFilter.json and the group goes on where it was.
func TestSQL92StoreMoves(t *testing.T) {
	t.Parallel()
	jvm := java(t)
	dir, topic, group := scratch(t), name(t, "T"), name(t, "CG")
	conf := map[string]string{"mappedFileSizeCommitLog": strconv.Itoa(8 << 20), "enablePropertyFilter": "true"}
	consume := func(at target, prefix string) {
		t.Helper()
		p := producer(t, jvm, at, args{"group": name(t, "PG") + prefix, "instance": name(t, "P") + prefix})
		c := open(t, jvm, "push", args{
			"namesrv": at.NameServer, "group": group, "topic": topic, "sql": pricedSQL, "instance": name(t, "C") + prefix,
		})
		sendPriced(t, p, topic, prefix, 20)
		want := priced(prefix, 20)
		if err := sameSet(bodies(awaitPush(t, jvm, c, len(want), 30_000)), want); err != nil {
			t.Errorf("%s: %v", prefix, err)
		}
		eventually(t, 20*time.Second, func() error { // the offset of all, filtered ones too, is committed
			if got := storedOffset(t, at, topic, group, 0); got%20 != 0 || got == 0 {
				return fmt.Errorf("offset %d", got)
			}
			return nil
		})
		run(t, jvm, "push.stop", args{"handle": c})
		run(t, jvm, "producer.stop", args{"handle": p})
	}
	filters := func() string {
		data, err := os.ReadFile(filepath.Join(dir, "config", "consumerFilter.json"))
		if err != nil {
			t.Error(err)
		}
		return string(data)
	}
	ours, p := startServer(t, dir, conf)
	createTopic(t, ours, topic, 1)
	consume(ours, "ours")
	if err := p.stop(); err != nil {
		t.Fatalf("stop: %v\n%s", err, p.output())
	}
	before := filters()
	if !strings.Contains(before, group) {
		t.Fatalf("our file has no %s: %s", group, before)
	}
	theirs := target{
		NameServer: address(ports(t)), Broker: address(ports(t)), BrokerName: ours.BrokerName, Dir: dir,
	}
	open(t, jvm, "namesrv", args{"port": port(theirs.NameServer), "dir": scratch(t)})
	broker := open(t, jvm, "broker", args{
		"port": port(theirs.Broker), "dir": dir, "namesrv": theirs.NameServer, "conf": conf,
	})
	waitForRoute(t, theirs.NameServer, topic)
	consume(theirs, "theirs")
	run(t, jvm, "broker.stop", args{"handle": broker})
	if after := filters(); !strings.Contains(after, group) || born(t, after, topic, group) != born(t, before, topic, group) {
		t.Errorf("Apache's broker did not go on with our filter:\n%s\n%s", before, after)
	}
	again, p := startServer(t, dir, conf)
	waitForRoute(t, again.NameServer, topic)
	consume(again, "again")
	if err := p.stop(); err != nil {
		t.Fatalf("stop: %v\n%s", err, p.output())
	}
	if last := filters(); born(t, last, topic, group) != born(t, before, topic, group) {
		t.Errorf("our broker did not go on with Apache's filter:\n%s\n%s", before, last)
	}
}

// born reads since when a group has had its filter.
func born(t *testing.T, text, topic, group string) int64 {
	t.Helper()
	var file struct {
		FilterDataByTopic map[string]struct {
			GroupFilterData map[string]struct {
				BornTime int64 `json:"bornTime"`
			} `json:"groupFilterData"`
		} `json:"filterDataByTopic"`
	}
	if err := json.Unmarshal([]byte(text), &file); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return file.FilterDataByTopic[topic].GroupFilterData[group].BornTime
}
