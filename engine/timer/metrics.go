// SPDX-License-Identifier: Apache-2.0

package timer

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/storage/vfs"
)

// MetricsName is the name of the file with the numbers of waiting messages in the configuration
// folder.
const MetricsName = "timermetrics"

// topicsMax bounds the topics that are counted; those of further ones are not in the file.
const topicsMax = 65536

// topicsEvery is how often the file is written at the most.
const topicsEvery = 10 * time.Second

// Metric counts the waiting messages of a topic; Timestamp is when that changed last, in ms.
type Metric struct {
	Count     int64 `json:"count"`
	Timestamp int64 `json:"timeStamp"`
}

// Metrics is RocketMQ's TimerMetrics: the file, and the body of GET_TIMER_METRICS.
type Metrics struct {
	DataVersion protocol.DataVersion `json:"dataVersion"`
	TimingCount map[string]Metric    `json:"timingCount"`
}

// topicCounts is Metrics in memory.
type topicCounts struct {
	Metrics
	changed bool
}

// loadTopics reads the file.
func (s *Service) loadTopics() error {
	path := filepath.Join(s.cfg.Dir, MetricsName)
	var m Metrics
	loaded, err := vfs.LoadTable(vfs.Table{
		FS: s.cfg.FS, Path: path, What: "numbers of waiting timer messages", AllowEmpty: s.cfg.AllowEmpty,
		Notice: s.cfg.Notice,
	}, func(data []byte) error {
		m = Metrics{}
		return protocol.Unmarshal(data, &m)
	})
	if err != nil {
		return fmt.Errorf("timer: load %s: %w", path, err)
	}
	if !loaded {
		m = Metrics{}
	}
	if m.TimingCount == nil {
		m.TimingCount = map[string]Metric{}
	}
	s.topics.Metrics = m
	return nil
}

// count adds to the waiting messages of a topic.
func (s *Service) count(topic []byte, n int64, nowMS int64) {
	s.pending.Add(n)
	s.mu.Lock()
	defer s.mu.Unlock()
	m, known := s.topics.TimingCount[string(topic)]
	if !known && len(s.topics.TimingCount) >= topicsMax {
		return
	}
	m.Count, m.Timestamp = max(m.Count+n, 0), nowMS
	if m.Count == 0 {
		delete(s.topics.TimingCount, string(topic))
	} else {
		s.topics.TimingCount[string(topic)] = m
	}
	s.topics.DataVersion.Next(nowMS)
	s.topics.changed = true
}

// Metrics returns the numbers of waiting messages as JSON.
func (s *Service) Metrics() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return protocol.Marshal(s.topics.Metrics)
}

// saveTopics writes the file if something changed.
func (s *Service) saveTopics() error {
	s.mu.Lock()
	changed := s.topics.changed
	s.topics.changed = false
	data := protocol.Marshal(s.topics.Metrics)
	s.mu.Unlock()
	if !changed {
		return nil
	}
	path := filepath.Join(s.cfg.Dir, MetricsName)
	if err := vfs.WriteFileAtomicIn(s.cfg.FS, path, data); err != nil {
		return fmt.Errorf("timer: write %s: %w", path, err)
	}
	return nil
}
