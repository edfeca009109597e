// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/skylarkmq/skylark/net/invoke"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage/record"
)

const (
	kept    = "kept"    // a topic that stays
	deleted = "deleted" // one that is deleted and made anew
	queues  = 4
	within  = 5 * time.Second // of one call
)

// place is where an acknowledged message must be.
type place struct {
	queue  int32
	offset int64
}

// proof is what is known of a message: a hash of its body, where the log has it, and when that was
// acknowledged.
type proof struct {
	sum  uint64
	at   int64
	when time.Time
}

// ledger is what was acknowledged.
type ledger struct {
	addr string
	seed maphash.Seed
	pool *invoke.Pool

	// Guards what follows.
	mu        sync.Mutex
	acked     map[string]map[place]proof // by topic
	life      int
	round     int  // of the deleted topic
	unsure    bool // whether the deleted topic's last deletion happened
	count     int
	deletions int
	logMin    int64 // files of the log from here on are not old
}

func newLedger(addr string) *ledger {
	return &ledger{
		addr: addr, seed: maphash.MakeSeed(), pool: invoke.NewPool(invoke.Config{}),
		acked: map[string]map[place]proof{kept: {}, deleted: {}},
	}
}

func (l *ledger) close() { _ = l.pool.Close() }

func (l *ledger) counts() (acked, deletions int) { return l.count, l.deletions }

func (l *ledger) call(ctx context.Context, code remoting.RequestCode, h remoting.Header, body []byte) (
	*invoke.Response, error,
) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return l.pool.Call(ctx, l.addr, &invoke.Request{Code: code, Header: h, Body: body})
}

// await waits until queue 0 of a topic has a message.
func (l *ledger) await(ctx context.Context, topic string) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(time.Minute); ; <-tick.C {
		r, err := l.call(ctx, remoting.PullMessage, &protocol.PullRequest{
			Group: []byte("crash-real"), Topic: []byte(topic), MaxMessages: 1, SysFlag: 4,
			Subscription: []byte("*"),
		}, nil)
		if err == nil && r.Code == remoting.Success {
			return nil
		}
		if ctx.Err() != nil || time.Now().After(end) {
			return fmt.Errorf("topic %s has no message within a minute: %w", topic, errors.Join(ctx.Err(), err))
		}
	}
}

// loading is load that goes on until it is stopped.
type loading struct {
	cancel context.CancelFunc
	done   sync.WaitGroup
}

func (l *loading) stop() {
	l.cancel()
	l.done.Wait()
}

// load sends to the topic that stays, and with churn to the other one, which it deletes now and then.
func (l *ledger) load(churn bool) *loading {
	l.mu.Lock()
	l.life++
	l.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	run := &loading{cancel: cancel}
	for worker := range queues {
		run.done.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				if !l.send(ctx, kept, int32(worker), fmt.Sprintf("%d/%d/%d", l.life, worker, i), i%1500) {
					return
				}
			}
		})
	}
	if churn {
		run.done.Go(func() { l.churn(ctx) })
	}
	return run
}

// send sends one message and notes its acknowledgement; false when the broker is gone.
func (l *ledger) send(ctx context.Context, topic string, queue int32, name string, size int) bool {
	body := name + " " + strings.Repeat("x", size)
	r, err := l.call(ctx, remoting.SendMessageV2, &protocol.SendRequest{
		Group: []byte("crash-real"), Topic: []byte(topic), DefaultTopic: []byte("TBW102"),
		DefaultTopicQueues: queues, QueueID: queue, MaxReconsumeTimes: -1,
		Properties: record.AppendProperty(nil, "KEYS", name),
	}, []byte(body))
	if err != nil {
		return false
	}
	var sent protocol.SendResponse
	if sent.Decode(r.Command) != nil || r.Code != remoting.Success {
		return true // refused, as while its topic is being deleted, or not known to be on disk
	}
	id := string(sent.MsgID)
	at, err := strconv.ParseInt(id[max(0, len(id)-16):], 16, 64)
	if err != nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count++
	l.acked[topic][place{sent.QueueID, sent.QueueOffset}] = proof{maphash.String(l.seed, body), at, time.Now()}
	return true
}

// churn fills the deleted topic and deletes it, again and again.
func (l *ledger) churn(ctx context.Context) {
	for ctx.Err() == nil {
		l.mu.Lock()
		round := l.round
		l.mu.Unlock()
		for i := range 100 {
			if !l.send(ctx, deleted, int32(i%queues), fmt.Sprintf("r%d/%d/%d", round, l.life, i), i*5) {
				return
			}
		}
		if l.remove(ctx) != nil {
			return
		}
	}
}

// remove deletes the topic that is there for it. What was in it must not come back.
func (l *ledger) remove(ctx context.Context) error {
	l.mu.Lock()
	l.unsure = true
	l.mu.Unlock()
	r, err := l.call(ctx, remoting.DeleteTopicInBroker, &protocol.DeleteTopicRequest{Topic: deleted}, nil)
	if err == nil && r.Code != remoting.Success {
		err = fmt.Errorf("delete topic: answer %d %s", r.Code, r.Remark)
	}
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unsure = false
	l.round++
	l.deletions++
	clear(l.acked[deleted])
	return nil
}

// keptFiles is how many log files are not made old: perf verify has no more than that to catch up with
// when it gets little of the processor.
const keptFiles = 8

// age makes all log files but the last ones old, so that the broker deletes them, and returns how
// many. The broker is dead.
func (l *ledger) age(dir string) (int, error) {
	files, err := filepath.Glob(filepath.Join(dir, "commitlog", "*"))
	if err != nil {
		return 0, err
	}
	if len(files) == 0 {
		return 0, errors.New("there is no file of the log below " + dir)
	}
	slices.Sort(files)
	n := max(0, len(files)-keptFiles)
	old := time.Now().Add(-80 * time.Hour)
	for _, f := range files[:n] {
		if err := os.Chtimes(f, old, old); err != nil {
			return 0, err
		}
	}
	base, err := strconv.ParseInt(filepath.Base(files[n]), 10, 64)
	l.logMin = base
	return n, err
}

// findings is what a check saw.
type findings struct {
	compared int
	lost     int       // acknowledged, and not there
	earliest time.Time // when the first of them was acknowledged
	below    int64     // none of them lies below this place in the log
	above    int64     // nor does one that is there lie above this
}

func (f *findings) lose(p proof) {
	f.lost++
	if f.lost == 1 || p.when.Before(f.earliest) {
		f.earliest = p.when
	}
	f.below = min(f.below, p.at)
}

// mayBeLost reports whether no flush need have covered a message when its device was pulled out.
func mayBeLost(p proof, since time.Time) bool { return !since.IsZero() && p.when.After(since) }

// check compares everything that can be read with what was acknowledged. Messages acknowledged later
// than since may be lost when it is not zero, if they are the end of the log; the ledger then forgets
// them.
func (l *ledger) check(ctx context.Context, since time.Time) (findings, error) {
	f := findings{below: math.MaxInt64, above: -1}
	if l.unsure { // make sure: it was not answered
		if err := l.remove(ctx); err != nil {
			return f, err
		}
	}
	for topic, acked := range l.acked {
		for queue := range int32(queues) {
			if err := l.checkQueue(ctx, topic, queue, acked, since, &f); err != nil {
				return f, fmt.Errorf("topic %s queue %d: %w", topic, queue, err)
			}
		}
	}
	if f.above > f.below {
		return f, fmt.Errorf("the message at %d of the log is lost, though that at %d is there", f.below,
			f.above)
	}
	return f, nil
}

func (l *ledger) checkQueue(
	ctx context.Context, topic string, queue int32, acked map[place]proof, since time.Time, f *findings,
) error {
	found, low, err := l.readAll(ctx, topic, queue)
	if err != nil {
		return err
	}
	for at, p := range acked {
		if at.queue != queue {
			continue
		}
		if at.offset < low {
			if p.at >= l.logMin && mayBeLost(p, since) {
				f.lose(p) // with all that the queue had in the log
			} else if p.at >= l.logMin {
				return fmt.Errorf("acknowledged message %d is hidden, the queue begins at %d", at.offset, low)
			}
			delete(acked, at) // else deleted with its file
			continue
		}
		body, ok := found[at.offset]
		switch {
		case !ok && mayBeLost(p, since):
			f.lose(p)
			delete(acked, at)
			continue
		case !ok:
			return fmt.Errorf("acknowledged message %d is lost, the queue has %d from %d", at.offset,
				len(found), low)
		case maphash.String(l.seed, body) != p.sum:
			return fmt.Errorf("acknowledged message %d is altered: %.40q", at.offset, body)
		}
		f.above = max(f.above, p.at)
		f.compared++
	}
	if topic == deleted {
		mark := fmt.Sprintf("r%d/", l.round)
		for offset, body := range found {
			if !strings.HasPrefix(body, mark) {
				return fmt.Errorf("message %d of a deleted topic came back: %.40q", offset, body)
			}
		}
	}
	return nil
}

// readAll reads a queue from its first message, low, to its end. What lies before a gap counts as
// deleted, which checkQueue believes only of messages in old files.
func (l *ledger) readAll(
	ctx context.Context, topic string, queue int32,
) (found map[int64]string, low int64, err error) {
	found = map[int64]string{}
	for next := int64(0); ; {
		r, err := l.call(ctx, remoting.PullMessage, &protocol.PullRequest{
			Group: []byte("crash-real"), Topic: []byte(topic), QueueID: queue, QueueOffset: next,
			MaxMessages: 32, SysFlag: 4, Subscription: []byte("*"),
		}, nil)
		if err != nil {
			return nil, 0, err
		}
		var head protocol.PullResponse
		switch r.Code {
		case remoting.Success:
		case remoting.PullRetryImmediately, remoting.PullOffsetMoved:
			if err := head.Decode(r.Command); err != nil {
				return nil, 0, err
			}
			if head.NextOffset != next {
				next, low = head.NextOffset, head.NextOffset
			}
			continue
		case remoting.PullNotFound, remoting.TopicNotExist:
			return found, low, nil
		default:
			return nil, 0, fmt.Errorf("pull at %d: answer %d %s", next, r.Code, r.Remark)
		}
		for body := r.Body; len(body) > 0; next++ {
			v, err := record.Parse(body)
			if err != nil {
				return nil, 0, fmt.Errorf("pull at %d: %w", next, err)
			}
			if int64(v.QueueOffset()) > next { // the log file of those before was deleted meanwhile
				next = int64(v.QueueOffset())
				low = next
			}
			if int64(v.QueueOffset()) != next || !v.CheckCRC() {
				return nil, 0, fmt.Errorf("pull at %d: message %d, or a wrong check sum", next, v.QueueOffset())
			}
			found[next] = string(v.Body())
			body = body[v.TotalSize():]
		}
	}
}
