// SPDX-License-Identifier: Apache-2.0

package timer_test

import (
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/engine/delay"
	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/record"
)

// million is how many timers wait in TestMillion.
const million = 1_000_000

// TestMillion files a million timers over two days, and holds what they cost in memory and at a start
// after a death.
func TestMillion(t *testing.T) {
	if testing.Short() {
		t.Skip("it stores half a gigabyte")
	}
	b := newBench(t, t.TempDir())
	b.config.FileSize = 100 << 20
	b.close()
	b.open()
	before := heap()
	start := time.Now()
	b.sendMany(million)
	stored := time.Since(start)
	start = time.Now()
	b.step(0)
	filed := time.Since(start)
	if n := b.service.Pending(); n != million {
		t.Fatalf("%d are said to wait", n)
	}
	after := heap()
	b.die()
	b.openStore()
	busy := cpu(t)
	b.openService()
	opened := cpu(t) - busy
	t.Logf("stored in %v, filed in %v, %d KB of heap, opened after a death in %v of CPU", stored,
		filed, (after-before)>>10, opened)
	if after-before > 50<<20 {
		t.Errorf("a million timers take %d bytes", after-before)
	}
	if most := 2 * time.Second; opened > most && !raceDetector {
		t.Errorf("the start took %v of CPU", opened)
	}
	if n := b.service.Pending(); n != million {
		t.Errorf("%d are said to wait after the start", n)
	}
	b.step(time.Hour)
	got := 0
	b.records(topicName, func(record.View) { got++ })
	if want := million / 47; got < want-50 || got > want+50 {
		t.Errorf("%d were delivered in the first hour, want about %d", got, want)
	}
}

// cpu is the time that this process has worked: other work on the machine does not count.
func cpu(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// sendMany stores timers that are due evenly over 47 hours.
func (b *bench) sendMany(n int) {
	b.t.Helper()
	rules := delay.Rules{Levels: b.levels, PrecisionMS: 1000, TimerMaxMS: 259200000}
	body := make([]byte, 100)
	var scratch []byte
	es := make([]storage.Entry, 0, 128)
	for i := range n {
		wait := int64(i)*47*3600*1000/int64(n) + 1000
		props := fmt.Appendf(nil, "TIMER_DELAY_MS\x01%d\x02UNIQ_KEY\x01%032d\x02", wait, i)
		es = append(es, storage.Entry{Draft: record.Draft{
			Topic: []byte(topicName), Body: body, Properties: props,
		}})
		var err error
		if scratch, _, err = rules.Park(&es[len(es)-1], scratch, b.ms.Load()); err != nil {
			b.t.Fatal(err)
		}
		if len(es) < cap(es) && i < n-1 {
			continue
		}
		b.store.Append(es)
		for j := range es {
			if es[j].Err != nil {
				b.t.Fatal(es[j].Err)
			}
		}
		es, scratch = es[:0], nil
	}
}
