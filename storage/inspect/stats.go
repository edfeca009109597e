// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/skylarkmq/skylark/storage/record"
)

// TopicStats counts the records of one topic in the log.
type TopicStats struct {
	Topic   string    `json:"topic"`
	Records int64     `json:"records"`
	Bytes   int64     `json:"bytes"` // of whole records
	Bodies  int64     `json:"body_bytes"`
	Queues  int       `json:"queues"`
	Oldest  time.Time `json:"oldest"` // when stored
	Newest  time.Time `json:"newest"`

	queues map[int32]bool
}

// Stats reads the whole log and counts by topic, the largest first.
func (d *Dir) Stats(ctx context.Context, progress Progress) ([]TopicStats, End, error) {
	topics := map[string]*TopicStats{}
	end, err := d.Records(ctx, d.Min(), progress, func(e Entry) error {
		t := topics[string(e.View.Topic())]
		if t == nil {
			t = &TopicStats{
				Topic: string(e.View.Topic()), Oldest: time.UnixMilli(e.View.StoreMS()),
				queues: map[int32]bool{},
			}
			topics[t.Topic] = t
		}
		t.Records++
		t.Bytes += int64(e.View.TotalSize())
		t.Bodies += int64(len(e.View.Body()))
		t.Newest = time.UnixMilli(e.View.StoreMS())
		t.queues[e.View.QueueID()] = true
		return nil
	})
	if err != nil {
		return nil, end, err
	}
	list := make([]TopicStats, 0, len(topics))
	for _, t := range topics {
		t.Queues = len(t.queues)
		list = append(list, *t)
	}
	slices.SortFunc(list, func(a, b TopicStats) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Topic, b.Topic))
	})
	return list, end, nil
}

// Filter selects records. Zero values select all.
type Filter struct {
	Topic string
	Queue int32 // -1: all
	Key   string
	// From and To bound the store time: From is in, To is not.
	From, To time.Time
}

// Match reports whether a record is selected. A key is one of those that index files find: one of
// KEYS, or the unique id.
func (f *Filter) Match(v record.View) bool {
	switch {
	case f.Topic != "" && string(v.Topic()) != f.Topic,
		f.Queue >= 0 && v.QueueID() != f.Queue,
		!f.From.IsZero() && v.StoreMS() < f.From.UnixMilli(),
		!f.To.IsZero() && v.StoreMS() >= f.To.UnixMilli():
		return false
	}
	return f.Key == "" || hasKey(v.Properties(), f.Key)
}

func hasKey(props []byte, key string) bool {
	if id, ok := record.Property(props, "UNIQ_KEY"); ok && string(id) == key {
		return true
	}
	keys, _ := record.Property(props, "KEYS")
	for len(keys) > 0 {
		end := slices.Index(keys, ' ')
		if end < 0 {
			return string(keys) == key
		}
		if string(keys[:end]) == key {
			return true
		}
		keys = keys[end+1:]
	}
	return false
}
