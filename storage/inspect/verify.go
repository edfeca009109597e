// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/skylarkmq/skylark/storage/consumequeue"
	"github.com/skylarkmq/skylark/storage/record"
)

// Finding is something that is not as it should be.
type Finding struct {
	Kind   string                `json:"kind"`
	At     record.PhysicalOffset `json:"at"`
	Topic  string                `json:"topic,omitempty"`
	Queue  int32                 `json:"queue"`
	Offset record.QueueOffset    `json:"queue_offset"`
	Detail string                `json:"detail,omitempty"`
}

// The kinds of findings.
const (
	BadSum       = "check sum"     // the bytes of a record have changed
	NoUnit       = "no queue unit" // a message that no consumer can reach
	WrongUnit    = "wrong unit"    // a unit that leads elsewhere than to its message
	StrayUnit    = "stray unit"    // a unit without a message in the log
	Damaged      = "damaged log"   // the log ends in something that is no record
	MissingFiles = "missing file"  // a file of the log is not there
	findingsMax  = 1000            // that are kept; the rest is counted
	scheduled    = "SCHEDULE_TOPIC_XXXX"
)

// Report is what Verify found.
type Report struct {
	Records  int64     `json:"records"`
	Bytes    int64     `json:"bytes"`
	Units    int64     `json:"units"`
	End      End       `json:"end"`
	Faults   int64     `json:"faults"`
	Findings []Finding `json:"findings,omitempty"` // the first of them
}

// OK reports whether nothing was wrong.
func (r *Report) OK() bool { return r.Faults == 0 }

func (r *Report) add(f Finding) {
	r.Faults++
	if len(r.Findings) < findingsMax {
		r.Findings = append(r.Findings, f)
	}
}

// Verify reads the whole log, checks every check sum, and holds every record against its queue unit
// and every unit against the log. Memory grows with the number of queues, not of messages.
func (d *Dir) Verify(ctx context.Context, progress Progress) (*Report, error) {
	queues, err := d.Queues("")
	if err != nil {
		return nil, err
	}
	v := verification{
		dir: d, cache: unitCache{queues: map[queueKey]*cachedQueue{}}, batches: map[queueKey]*batchCursor{},
	}
	for _, q := range queues {
		if q.Batch {
			v.batches[queueKey{q.Topic, q.ID}] = &batchCursor{queue: q}
			continue
		}
		v.cache.queues[queueKey{q.Topic, q.ID}] = &cachedQueue{queue: q}
	}
	v.report.End, err = d.Records(ctx, d.Min(), progress, v.record)
	if err != nil {
		return nil, err
	}
	end := v.report.End
	if end.Reason == EndDamage {
		v.report.add(Finding{Kind: Damaged, At: end.At, Detail: end.Detail})
	}
	if end.Reason == EndGap {
		v.report.add(Finding{Kind: MissingFiles, At: end.At, Detail: end.Detail})
	}
	if err := v.strays(ctx); err != nil {
		return nil, err
	}
	for key, c := range v.batches {
		if err := v.batchStrays(key, c); err != nil {
			return nil, err
		}
	}
	return &v.report, nil
}

type verification struct {
	dir     *Dir
	cache   unitCache
	batches map[queueKey]*batchCursor
	report  Report
}

// record checks one record and its unit.
func (v *verification) record(e Entry) error {
	v.report.Records++
	v.report.Bytes += int64(e.View.TotalSize())
	f := Finding{
		At: e.At, Topic: string(e.View.Topic()), Queue: e.View.QueueID(), Offset: e.View.QueueOffset(),
	}
	if !e.Sound {
		f.Kind, f.Detail = BadSum, ""
		v.report.add(f)
	}
	switch e.View.SysFlag() & record.SysTransactionMask {
	case record.SysPrepared, record.SysRollback:
		return nil // these are in no queue
	}
	if c := v.batches[queueKey{f.Topic, f.Queue}]; c != nil {
		return v.batchRecord(c, f, e)
	}
	if err := v.unit(f, e, v.tagsOf(f.Topic, e.View)); err != nil {
		return err
	}
	return v.lightQueues(f, e)
}

// anyTags is a hash that every unit has.
const anyTags = math.MinInt64

// unit holds one unit against its record.
func (v *verification) unit(f Finding, e Entry, tags int64) error {
	c := v.cache.queues[queueKey{f.Topic, f.Queue}]
	if c == nil {
		f.Kind, f.Detail = NoUnit, "the queue is not there"
		v.report.add(f)
		return nil
	}
	u, ok, err := c.unit(f.Offset)
	switch {
	case err != nil:
		return err
	case !ok:
		f.Kind = NoUnit
		v.report.add(f)
	case u.At != e.At || u.Size != e.View.TotalSize(),
		tags != anyTags && !u.Ext() && u.TagsCode != tags:
		f.Kind = WrongUnit
		f.Detail = fmt.Sprintf("the unit says offset %d, %d bytes, tags %d", u.At, u.Size, u.TagsCode)
		v.report.add(f)
	default:
		c.right++
	}
	return nil
}

// lightQueues checks the further queues that a record is in (RocketMQ's multi dispatch).
func (v *verification) lightQueues(f Finding, e Entry) error {
	names, ok := record.Property(e.View.Properties(), "INNER_MULTI_DISPATCH")
	if !ok {
		return nil
	}
	offsets, _ := record.Property(e.View.Properties(), "INNER_MULTI_QUEUE_OFFSET")
	places := strings.Split(string(offsets), ",")
	for i, name := range strings.Split(string(names), ",") {
		if i >= len(places) || !strings.HasPrefix(name, "%LMQ%") {
			continue
		}
		at, err := strconv.ParseInt(places[i], 10, 64)
		if err != nil {
			continue
		}
		f.Topic, f.Queue, f.Offset = name, 0, record.QueueOffset(at)
		if err := v.unit(f, e, anyTags); err != nil {
			return err
		}
	}
	return nil
}

// tagsOf is the hash that the unit of a message has. Delayed messages have their time there.
func (v *verification) tagsOf(topic string, r record.View) int64 {
	if topic == scheduled {
		return anyTags
	}
	tag, _ := record.Property(r.Properties(), "TAGS")
	return record.TagsCode(tag)
}

// strays finds units that lead behind the end of the log, and counts all.
func (v *verification) strays(ctx context.Context) error {
	keys := make([]queueKey, 0, len(v.cache.queues))
	for k := range v.cache.queues {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b queueKey) int {
		return cmp.Or(cmp.Compare(a.topic, b.topic), cmp.Compare(a.id, b.id))
	})
	low := v.dir.Min()
	for _, k := range keys {
		if err := ctx.Err(); err != nil {
			return err
		}
		c := v.cache.queues[k]
		var inLog int64
		var last Finding
		err := c.queue.Units(c.queue.First, func(at record.QueueOffset, u consumequeue.Unit) error {
			v.report.Units++
			if u.Filler() || u.At < low {
				return nil // the log has been cleaned up to here, queues follow
			}
			inLog++
			last = Finding{At: u.At, Offset: at}
			if u.End() > v.report.End.At {
				v.report.add(Finding{
					Kind: StrayUnit, At: u.At, Topic: k.topic, Queue: k.id, Offset: at,
					Detail: "it leads behind the end of the log",
				})
			}
			return nil
		})
		if err != nil {
			return err
		}
		if extra := inLog - c.right; extra > 0 && v.report.OK() {
			v.report.add(Finding{
				Kind: StrayUnit, At: last.At, Topic: k.topic, Queue: k.id, Offset: last.Offset,
				Detail: fmt.Sprintf("%d units of the queue belong to no message", extra),
			})
		}
	}
	return nil
}
