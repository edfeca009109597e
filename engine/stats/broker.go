// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// tpsTicks is the length of the longest rate that GET_BROKER_RUNTIME_INFO shows, in ticks.
const tpsTicks = 60

// bounds are the upper ends in milliseconds of RocketMQ's put time buckets, and labels their text.
var (
	bounds = [...]int64{0, 10, 50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000, 10000}
	labels = [...]string{
		"[<=0ms]", "[0~10ms]", "[10~50ms]", "[50~100ms]", "[100~200ms]", "[200~500ms]",
		"[500ms~1s]", "[1~2s]", "[2~3s]", "[3~4s]", "[4~5s]", "[5~10s]", "[10s~]",
	}
)

// Broker is the statistics of the whole broker. Items count messages.
type Broker struct {
	PutNums, GetNums              *Item
	PutNumsUser, GetNumsUser      *Item // without system topics and groups
	put, found, miss, sent        rate  // calls, calls, calls, messages
	putDays, getDays              daily
	putFailed, putMaxMS, getMaxMS atomic.Int64
	putBytes                      atomic.Int64
	buckets                       [len(labels)]atomic.Int64
}

func newBroker(nowMS int64, loc *time.Location) *Broker {
	b := &Broker{
		PutNums: newItem(nowMS), GetNums: newItem(nowMS),
		PutNumsUser: newItem(nowMS), GetNumsUser: newItem(nowMS),
	}
	b.putDays.init(nowMS, loc)
	b.getDays.init(nowMS, loc)
	for _, r := range []*rate{&b.put, &b.found, &b.miss, &b.sent} {
		r.init(nowMS)
	}
	return b
}

// Put counts sends: messages stored with bytes in all, each call in tookMS milliseconds.
func (b *Broker) Put(nowMS, calls, messages, bytes, tookMS int64, system bool) {
	b.putDays.roll(nowMS, b.PutNums.Sum())
	b.PutNums.AddCalls(nowMS, calls, messages)
	if !system {
		b.PutNumsUser.AddCalls(nowMS, calls, messages)
	}
	b.put.add(nowMS, messages)
	b.putBytes.Add(bytes)
	raise(&b.putMaxMS, tookMS)
	b.buckets[bucketOf(tookMS)].Add(calls)
}

// PutFailed counts one send that was not stored.
func (b *Broker) PutFailed() { b.putFailed.Add(1) }

// Get counts one pull that found messages.
func (b *Broker) Get(nowMS, messages, tookMS int64, system bool) {
	b.getDays.roll(nowMS, b.GetNums.Sum())
	b.GetNums.Add(nowMS, messages)
	if !system {
		b.GetNumsUser.Add(nowMS, messages)
	}
	b.found.add(nowMS, 1)
	b.sent.add(nowMS, messages)
	raise(&b.getMaxMS, tookMS)
}

// Miss counts one pull that found nothing.
func (b *Broker) Miss(nowMS int64) { b.miss.add(nowMS, 1) }

func (b *Broker) item(name string) *Item {
	switch name {
	case "BROKER_PUT_NUMS":
		return b.PutNums
	case "BROKER_GET_NUMS":
		return b.GetNums
	case "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC":
		return b.PutNumsUser
	case "BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC":
		return b.GetNumsUser
	}
	return nil
}

// Totals are the messages counted up to three moments: midnight a day ago, last midnight, now.
type Totals struct{ YesterdayMorning, TodayMorning, Now int64 }

// Report is what GET_BROKER_RUNTIME_INFO shows of these statistics.
type Report struct {
	Put, Get           Totals
	PutCalls           int64
	PutFailed          int64
	PutBytes           int64
	PutMaxMS, GetMaxMS int64
	PutTimes           string // RocketMQ's histogram text
	PutMS99, PutMS999  float64
	// Rates per second over 10 s, 60 s and 600 s, separated by blanks.
	PutTPS, FoundTPS, MissTPS, TotalTPS, TransferredTPS string
}

// Report reads everything at nowMS.
func (b *Broker) Report(nowMS int64) Report {
	r := Report{
		Put: b.putDays.totals(nowMS, b.PutNums.Sum()), Get: b.getDays.totals(nowMS, b.GetNums.Sum()),
		PutFailed: b.putFailed.Load(), PutBytes: b.putBytes.Load(),
		PutMaxMS: b.putMaxMS.Load(), GetMaxMS: b.getMaxMS.Load(),
		PutTPS: b.put.text(nowMS), FoundTPS: b.found.text(nowMS), MissTPS: b.miss.text(nowMS),
		TransferredTPS: b.sent.text(nowMS), TotalTPS: text(nowMS, &b.found, &b.miss),
	}
	var times strings.Builder
	var counts [len(labels)]int64
	for i := range counts {
		counts[i] = b.buckets[i].Load()
		r.PutCalls += counts[i]
		times.WriteString(labels[i] + ":" + strconv.FormatInt(counts[i], 10) + " ")
	}
	r.PutTimes = times.String()
	r.PutMS99 = percentile(counts[:], r.PutCalls, 0.99, r.PutMaxMS)
	r.PutMS999 = percentile(counts[:], r.PutCalls, 0.999, r.PutMaxMS)
	return r
}

// percentile is the upper end of the bucket that holds the given share of all calls.
func percentile(counts []int64, total int64, share float64, maxMS int64) float64 {
	if total == 0 {
		return 0
	}
	want, seen := int64(float64(total)*share+0.5), int64(0)
	for i, n := range counts {
		if seen += n; seen >= want && i < len(bounds) {
			return float64(min(bounds[i], maxMS))
		}
	}
	return float64(maxMS)
}

func bucketOf(ms int64) int {
	for i, bound := range bounds {
		if ms <= bound {
			return i
		}
	}
	return len(bounds)
}

func raise(to *atomic.Int64, v int64) {
	for {
		old := to.Load()
		if v <= old || to.CompareAndSwap(old, v) {
			return
		}
	}
}

// rate is a counter with a snapshot for each of the last 60 ticks.
type rate struct {
	n   atomic.Int64
	due atomic.Int64

	mu   sync.Mutex // guards ring
	ring ring
}

func (r *rate) init(nowMS int64) {
	start := nowMS - nowMS%tickMS
	r.ring.push(snapshot{atMS: start}, tpsTicks+1)
	r.due.Store(start + tickMS)
}

func (r *rate) add(nowMS, n int64) {
	if out(nowMS, r.due.Load()) {
		r.roll(nowMS)
	}
	r.n.Add(n)
}

func (r *rate) roll(nowMS int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	due := r.due.Load()
	if !out(nowMS, due) {
		return
	}
	last := nowMS - nowMS%tickMS
	n := r.n.Load()
	if nowMS < due { // the clock went back
		r.ring.kept = append(r.ring.kept[:0], snapshot{atMS: last, sum: n})
		r.due.Store(last + tickMS)
		return
	}
	for at := max(due, last-tpsTicks*tickMS); at <= last; at += tickMS {
		r.ring.push(snapshot{atMS: at, sum: n}, tpsTicks+1)
	}
	r.due.Store(last + tickMS)
}

// per is the rate over the last ticks, or over the time that is known when that is shorter.
func (r *rate) per(nowMS int64, ticks int) float64 {
	if out(nowMS, r.due.Load()) {
		r.roll(nowMS)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	kept := r.ring.kept
	first, last := kept[max(0, len(kept)-1-ticks)], kept[len(kept)-1]
	if last.atMS == first.atMS {
		return 0
	}
	return float64(last.sum-first.sum) * 1000 / float64(last.atMS-first.atMS)
}

func (r *rate) text(nowMS int64) string { return text(nowMS, r) }

// text is the sum of rates over 10 s, 60 s and 600 s.
func text(nowMS int64, rates ...*rate) string {
	var b strings.Builder
	for i, ticks := range [...]int{1, 6, tpsTicks} {
		sum := 0.0
		for _, r := range rates {
			sum += r.per(nowMS, ticks)
		}
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(strconv.FormatFloat(sum, 'f', -1, 64))
		if sum == float64(int64(sum)) {
			b.WriteString(".0") // as Java writes a double
		}
	}
	return b.String()
}

// daily remembers a total at the last two midnights.
type daily struct {
	loc  *time.Location
	next atomic.Int64 // the coming midnight in milliseconds

	mu               sync.Mutex // guards what follows
	yesterday, today int64
}

func (d *daily) init(nowMS int64, loc *time.Location) {
	d.loc = loc
	d.next.Store(d.midnightAfter(nowMS))
}

func (d *daily) midnightAfter(ms int64) int64 {
	y, mon, day := time.UnixMilli(ms).In(d.loc).Date()
	return time.Date(y, mon, day+1, 0, 0, 0, 0, d.loc).UnixMilli()
}

// roll closes the days that ended before nowMS; total is the count before anything new is added.
func (d *daily) roll(nowMS, total int64) {
	const twoDaysMS = 48 * 3600 * 1000
	if next := d.next.Load(); nowMS < next && nowMS >= next-twoDaysMS {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	next := d.next.Load()
	if nowMS < next {
		if nowMS < next-twoDaysMS { // the clock went back
			d.next.Store(d.midnightAfter(nowMS))
		}
		return
	}
	d.yesterday, d.today = d.today, total
	if nowMS >= d.midnightAfter(next) {
		d.yesterday = total // a whole day without a call
	}
	d.next.Store(d.midnightAfter(nowMS))
}

func (d *daily) totals(nowMS, total int64) Totals {
	d.roll(nowMS, total)
	d.mu.Lock()
	defer d.mu.Unlock()
	return Totals{YesterdayMorning: d.yesterday, TodayMorning: d.today, Now: total}
}
