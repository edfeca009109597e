// SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/storage/vfs"
)

// CountsName is the name of the file with the numbers of half messages in the configuration folder.
const CountsName = "transactionMetrics"

// countsMax bounds the topics that are counted; those of further ones are not in the file.
const countsMax = 65536

// Count says how many half messages of a topic are undecided; Timestamp is when that changed last, in
// milliseconds.
type Count struct {
	Count     int64 `json:"count"`
	Timestamp int64 `json:"timeStamp"`
}

// countsFile is the layout of the file (RocketMQ TransactionMetricsSerializeWrapper).
type countsFile struct {
	DataVersion      protocol.DataVersion `json:"dataVersion"`
	TransactionCount map[string]Count     `json:"transactionCount"`
}

// Counts are the numbers of half messages that were neither committed nor rolled back nor given up, by
// the topic that they shall go to (RocketMQ TransactionMetrics). They are for people to look at: a kill
// loses what changed since the file was written, and a number never goes below zero. A nil *Counts counts
// nothing. The methods may be called from any goroutine.
type Counts struct {
	path   string
	every  time.Duration
	now    func() time.Time
	notice func(msg string, kv ...any)

	mu     sync.Mutex // a leaf
	file   countsFile
	timer  *time.Timer // runs while something is to be written
	closed bool

	writing sync.Mutex // held across the write of the file; taken before mu
}

// OpenCounts reads the file in a configuration folder. A missing one is an empty one. Where every copy is
// damaged it fails and names them, unless allowEmpty. What changes is written after every, RocketMQ's
// transactionMetricFlushInterval, and at Close.
func OpenCounts(
	dir string, allowEmpty bool, every time.Duration, now func() time.Time,
	notice func(msg string, kv ...any),
) (*Counts, error) {
	c := &Counts{path: filepath.Join(dir, CountsName), every: every, now: now, notice: notice}
	loaded, err := vfs.LoadTable(vfs.Table{
		Path: c.path, What: "numbers of half messages", AllowEmpty: allowEmpty, Notice: notice,
	}, func(data []byte) error {
		c.file = countsFile{}
		return protocol.Unmarshal(data, &c.file)
	})
	if err != nil {
		return nil, fmt.Errorf("transaction: load %s: %w", c.path, err)
	}
	if !loaded {
		c.file = countsFile{}
	}
	if c.file.TransactionCount == nil {
		c.file.TransactionCount = map[string]Count{}
	}
	return c, nil
}

// Add adds n half messages of a topic.
func (c *Counts) Add(topic []byte, n int64) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	m, known := c.file.TransactionCount[string(topic)]
	if c.closed || !known && len(c.file.TransactionCount) >= countsMax {
		return
	}
	nowMS := c.now().UnixMilli()
	m.Count, m.Timestamp = max(m.Count+n, 0), nowMS
	c.file.TransactionCount[string(topic)] = m
	c.file.DataVersion.Next(nowMS)
	if c.timer == nil {
		c.timer = time.AfterFunc(c.every, func() {
			if err := c.save(); err != nil {
				c.notice("numbers of half messages not written", "err", err)
			}
		})
	}
}

// Of returns the number of a topic.
func (c *Counts) Of(topic string) int64 {
	if c == nil {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.file.TransactionCount[topic].Count
}

// save writes the file if something changed since it was written.
func (c *Counts) save() error {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.mu.Lock()
	changed := c.timer != nil
	c.timer = nil
	data := protocol.Marshal(c.file)
	c.mu.Unlock()
	if !changed {
		return nil
	}
	if err := vfs.WriteFileAtomic(c.path, data); err != nil {
		return fmt.Errorf("transaction: write %s: %w", c.path, err)
	}
	return nil
}

// Close writes what changed. Nothing is counted afterwards.
func (c *Counts) Close() error {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	c.closed = true
	if c.timer != nil {
		c.timer.Stop()
	}
	c.mu.Unlock()
	return c.save()
}
