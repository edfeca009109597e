// SPDX-License-Identifier: Apache-2.0

package pop

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/engine/delay"
	"github.com/skylarkmq/skylark/engine/group"
	"github.com/skylarkmq/skylark/engine/offset"
	"github.com/skylarkmq/skylark/engine/progress"
	"github.com/skylarkmq/skylark/engine/timer"
	"github.com/skylarkmq/skylark/engine/topic"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/record"
	"github.com/skylarkmq/skylark/storage/vfs"
)

// lateBench is a store, the timers and the pop service, none of which goes on by itself.
type lateBench struct {
	*storage.Store
	t       *testing.T
	ms      int64
	timers  *timer.Service
	service *Service
	config  Config
	// appended is called after entries were stored, before the service hears of it; refuse says of
	// which entry on a full disk keeps them out.
	appended func()
	refuse   func(es []storage.Entry) int
}

func (b *lateBench) now() time.Time { return time.UnixMilli(b.ms) }

// AppendAll is the store's, as on a disk that is full from one entry on.
func (b *lateBench) AppendAll(es []storage.Entry) int {
	n := len(es)
	if b.refuse != nil {
		n = b.refuse(es)
	}
	stored := b.Store.AppendAll(es[:n])
	for i := stored; i < len(es); i++ {
		es[i].Err = storage.ErrDiskFull
	}
	if b.appended != nil {
		b.appended()
	}
	return stored
}

func newLateBench(t *testing.T) *lateBench {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	b := &lateBench{t: t, ms: 1_795_977_772_000}
	cfg := storage.DefaultConfig(dir)
	cfg.SegmentSize, cfg.QueueFileSize, cfg.IndexEnable, cfg.Now = 8<<20, 6000, false, b.now
	var err error
	b.Store, err = storage.Open(cfg)
	must(err)
	t.Cleanup(func() { must(b.Close()) })
	notice := func(msg string, kv ...any) { t.Log(msg, kv) }
	configs := filepath.Join(dir, "config")
	marks, err := progress.Open(vfs.OS(), configs)
	must(err)
	b.timers, err = timer.Open(timer.Config{
		FS: vfs.OS(), Root: dir, Dir: configs, PrecisionMS: 1000, FileSize: 4096, RollTicks: 172800,
		Interval: time.Second, Store: b.Store, Progress: marks, Now: b.now, Notice: notice,
		Delivered: func([]byte, int, int) {},
	})
	must(err)
	t.Cleanup(func() { must(b.timers.Close()) })
	topics, err := topic.Open(configs, topic.Config{BrokerName: "b", ClusterName: "c"})
	must(err)
	must(topics.Put(&protocol.TopicConfig{TopicName: "T", ReadQueueNums: 1, WriteQueueNums: 1, Perm: 6}))
	groups, err := group.OpenConfigs(configs, group.ConfigsConfig{AutoCreate: true})
	must(err)
	_, _, err = groups.LookupOrCreate("g")
	must(err)
	offsets, err := offset.Open(configs, offset.Config{Interval: time.Hour})
	must(err)
	t.Cleanup(func() { must(offsets.Close()) })
	orders, err := OpenOrders(configs, false, notice)
	must(err)
	t.Cleanup(func() { must(orders.Close()) })
	b.config = Config{
		Store: b, Topics: topics, Groups: groups, Offsets: offsets, Orders: orders, Timer: b.timers,
		Wake: func(string, string, int32) {}, Rules: &delay.Rules{PrecisionMS: 1000, TimerMaxMS: 1 << 40},
		ReviveTopic: "rmq_sys_REVIVE_LOG_c", ReviveQueues: 1, Broker: "b",
		StoreHost: netip.MustParseAddrPort("127.0.0.1:10911"), Now: b.now, Notice: notice,
	}
	b.restart()
	return b
}

// restart begins anew with what the store and the tables know.
func (b *lateBench) restart() {
	b.service = New(b.config)
	b.service.placeReaders()
}

// send stores messages in T.
func (b *lateBench) send(n int) {
	b.t.Helper()
	for i := range n {
		es := []storage.Entry{{Draft: record.Draft{
			Topic: []byte("T"), Body: fmt.Append(nil, "m", i), BornHost: b.config.StoreHost,
			StoreHost: b.config.StoreHost, BornMS: b.ms,
		}}}
		if b.Append(es); es[0].Err != nil {
			b.t.Fatal(es[0].Err)
		}
	}
}

// take pops what a topic has; the messages are out for 3 s.
func (b *lateBench) take(from string) (Taken, []string) {
	b.t.Helper()
	got, err := b.service.Take(&Wish{
		Topic: from, Group: "g", Max: 32, PopMS: b.ms, InvisibleMS: 3000,
	})
	if err != nil {
		b.t.Fatal(err)
	}
	defer release(got.Regions)
	var bodies []string
	for _, v := range got.Records {
		bodies = append(bodies, string(v.Body()))
	}
	return got, bodies
}

// again returns the messages that came into the retry topic.
func (b *lateBench) again() string {
	b.t.Helper()
	req := storage.ReadRequest{
		Topic: []byte(RetryTopic("T", "g", false)), MaxMessages: 1000, MaxBytes: 1 << 20, Touch: true,
	}
	var res storage.ReadResult
	b.Read(&req, &res)
	defer release(res.Regions)
	var bodies []string
	for i := range res.Regions {
		for mem := res.Regions[i].Mem; len(mem) > 0; {
			v, err := record.Parse(mem)
			if err != nil {
				b.t.Fatal(err)
			}
			bodies, mem = append(bodies, string(v.Body())), mem[v.TotalSize():]
		}
	}
	slices.Sort(bodies)
	return strings.Join(bodies, " ")
}

// timersCatchUp delivers what is due, and lets the service look at it.
func (b *lateBench) timersCatchUp() {
	b.t.Helper()
	b.timers.Step(b.now())
	b.service.step()
	b.ms += 600
	b.timers.Step(b.now())
	b.service.step()
}

func (b *lateBench) want(when, bodies string) {
	b.t.Helper()
	if got := b.again(); got != bodies {
		b.t.Errorf("%s: %q came again, want %q", when, got, bodies)
	}
}

// TestLateCheckpoint: the timers are late, as on a full disk, and the record of a checkpoint comes into the
// revive topic behind the acknowledgements of its messages.
func TestLateCheckpoint(t *testing.T) {
	t.Parallel()
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprint("restart=", restart), func(t *testing.T) {
			t.Parallel()
			b := newLateBench(t)
			b.send(4)
			got, _ := b.take("T")
			b.ms += 4000
			// One is acknowledged after its time; the others are taken back.
			if err := b.service.Ack(&Acked{
				Topic: "T", Group: "g", Offsets: []int64{2}, Receipt: Receipt{
					StartOffset: got.Start, PopMS: b.ms - 4000, InvisibleMS: 3000, Broker: "b",
				},
			}); err != nil {
				t.Fatal(err)
			}
			b.service.step()
			b.want("taken back", "m0 m1 m3")
			if n := b.service.InFlight(); n != 0 {
				t.Errorf("%d checkpoints are in memory", n)
			}
			if restart {
				if err := b.Flush(); err != nil {
					t.Fatal(err)
				}
				b.ms += againMS
				b.service.step() // commits what may be
				b.restart()
			}
			b.timersCatchUp()
			b.timersCatchUp()
			b.want("the timers have come", "m0 m1 m3")
			if n := b.service.InFlight(); n != 0 {
				t.Errorf("%d checkpoints are in memory", n)
			}
			if n := len(b.service.early); n != 0 {
				t.Errorf("%d early acknowledgements are kept", n)
			}
		})
	}
}

// TestReadBackAtOnce: a checkpoint is read back and over before the pop that wrote it goes on.
func TestReadBackAtOnce(t *testing.T) {
	t.Parallel()
	b := newLateBench(t)
	b.send(4)
	b.appended = func() {
		b.appended = nil
		b.ms += 5000
		b.timersCatchUp()
	}
	b.take("T")
	b.timersCatchUp()
	b.timersCatchUp()
	b.want("long after their time", "m0 m1 m2 m3")
}

// TestCopiedUnnoted: the copies are stored, and their acknowledgement is not, for the disk is full. It is
// stored later, and a start in between makes no more copies.
func TestCopiedUnnoted(t *testing.T) {
	t.Parallel()
	b := newLateBench(t)
	b.send(4)
	b.take("T")
	b.ms += 2000
	b.timersCatchUp()
	b.ms += 1000
	b.refuse = func(es []storage.Entry) int { return min(len(es), 4) }
	b.service.step()
	b.want("on a full disk", "m0 m1 m2 m3")
	if n := b.service.InFlight(); n != 1 {
		t.Errorf("%d checkpoints are in memory, want the one whose acknowledgement is not stored", n)
	}
	b.refuse = nil
	b.ms += 2 * againMS
	b.service.step()
	if n := b.service.InFlight(); n != 0 {
		t.Errorf("%d checkpoints are in memory", n)
	}
	b.restart()
	b.timersCatchUp()
	b.timersCatchUp()
	b.want("after a start", "m0 m1 m2 m3")
}
