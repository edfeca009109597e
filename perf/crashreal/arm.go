// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"
)

// arm is a number of deaths under the same conditions.
type arm struct {
	*plan
	name   string
	flush  string // flushDiskType
	churn  bool   // topics are deleted, and old files of the log
	kind   string // of the file system whose device is pulled out; "": processes are killed
	deaths int
	sum    tally
}

// worldDeaths is how many deaths a store goes through before the next one begins with an empty
// directory: where nothing is deleted each check reads all that was ever sent.
const worldDeaths = 10

// tally counts what happened.
type tally struct {
	deaths, checks, acked, compared, lost, deletes, files int
	longest                                               time.Duration // from start to ready
	oldest                                                time.Duration // of a lost message, at the death
	verified                                              int           // by perf verify
	verify                                                string        // what it said last
}

func (a *arm) String() string {
	s := &a.sum
	what := "kills"
	if a.kind != "" {
		what = "devices pulled out"
	}
	text := fmt.Sprintf("%d %s, %d checks, %d messages of the ledger acknowledged, %d compared, "+
		"%d topic deletions, %d log files deleted, slowest start %s", s.deaths, what, s.checks,
		s.acked, s.compared, s.deletes, s.files, s.longest.Round(time.Millisecond))
	if a.mayLose() {
		return text + fmt.Sprintf(", %d lost that no flush had covered, the oldest %s before",
			s.lost, s.oldest.Round(time.Millisecond))
	}
	return text + fmt.Sprintf("; perf verify: %d messages, last %s", s.verified, s.verify)
}

// mayLose reports whether an acknowledgement does not promise that a message is on the device.
func (a *arm) mayLose() bool { return a.kind != "" && a.flush == "ASYNC_FLUSH" }

func (a *arm) run(ctx context.Context) error {
	for i := 0; a.sum.deaths < a.deaths; i++ {
		if err := a.world(ctx, filepath.Join(a.work, fmt.Sprintf("%s-%d", a.name, i))); err != nil {
			return err
		}
		_, _ = fmt.Fprintf(os.Stderr, "crash-real: %s: %d of %d, %d compared\n", a.name, a.sum.deaths,
			a.deaths, a.sum.compared)
	}
	return nil
}

// world lets one store die some times.
func (a *arm) world(ctx context.Context, dir string) (err error) {
	data := dir
	var dev *device
	if a.kind != "" {
		if dev, err = newDevice(a.kind, dir); err != nil {
			return errors.Join(errSkipped, err)
		}
		defer func() {
			if err == nil {
				err = dev.close()
			}
		}()
		data = dev.point
	}
	b, err := newBroker(a.skylark, dir, filepath.Join(data, "data"), a.flush)
	if err != nil {
		return err
	}
	defer b.kill() // runs before the device goes
	if err := a.start(ctx, b); err != nil {
		return err
	}
	l := newLedger(b.Addr)
	defer l.close()
	var v *verifier
	if !a.mayLose() {
		if v, err = b.startVerify(ctx, a.rate); err != nil {
			return err
		}
		defer v.stop()
		if err := l.await(ctx, checkedTopic); err != nil { // or its start would meet the first death
			return err
		}
	}
	for i := 0; i < worldDeaths && a.sum.deaths < a.deaths; i++ {
		if err := a.life(ctx, b, l, dev); err != nil {
			return fmt.Errorf("death %d: %w (the store is in %s)", a.sum.deaths, err, dir)
		}
	}
	acked, deletions := l.counts()
	a.sum.acked, a.sum.deletes = a.sum.acked+acked, a.sum.deletes+deletions
	if v != nil {
		var n int
		a.sum.verify, n, err = v.finish()
		a.sum.verified += n
		if err != nil {
			return err
		}
	}
	b.kill()
	if dev == nil {
		return os.RemoveAll(dir)
	}
	return nil
}

// errSkipped says that this machine cannot do what an arm needs.
var errSkipped = errors.New("skipped")

// life loads the broker, lets it die, starts it again and compares.
func (a *arm) life(ctx context.Context, b *broker, l *ledger, dev *device) error {
	load := l.load(a.churn)
	lives := a.least + rand.N(a.most-a.least+1)
	if a.mayLose() {
		lives += unflushedMax // so that there is what must not be lost
	}
	timer := time.NewTimer(lives)
	select {
	case <-timer.C:
	case <-ctx.Done():
		timer.Stop()
		load.stop()
		return ctx.Err()
	}
	died := time.Now()
	if dev != nil {
		if err := dev.yank(); err != nil {
			load.stop()
			return err
		}
	}
	b.kill()
	load.stop()
	a.sum.deaths++
	if dev != nil {
		if err := dev.plug(); err != nil {
			return err
		}
	}
	if a.churn {
		n, err := l.age(b.Store)
		if err != nil {
			return err
		}
		a.sum.files += n
	}
	if err := a.start(ctx, b); err != nil {
		return err
	}
	var since time.Time
	if a.mayLose() {
		since = died.Add(-unflushedMax)
	}
	found, err := l.check(ctx, since)
	a.sum.checks++
	a.sum.compared += found.compared
	a.sum.lost += found.lost
	if found.lost > 0 {
		a.sum.oldest = max(a.sum.oldest, died.Sub(found.earliest))
	}
	return err
}

// unflushedMax is how long before the device is pulled out a message may have been acknowledged that
// ASYNC_FLUSH has not brought to it: its 500 ms, and the time of a flush on a busy machine.
const unflushedMax = 3 * time.Second

func (a *arm) start(ctx context.Context, b *broker) error {
	took, err := b.Start(ctx)
	a.sum.longest = max(a.sum.longest, took)
	return err
}
