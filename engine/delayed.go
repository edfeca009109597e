// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"time"

	"github.com/skylarkmq/skylark/engine/delay"
	"github.com/skylarkmq/skylark/engine/processor"
	"github.com/skylarkmq/skylark/engine/progress"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/vfs"
)

// delayed is what delivers messages later.
type delayed struct {
	rules    delay.Rules
	progress *progress.File
	levels   *delay.Service
}

// delayRules are the rules for messages that ask to be delivered later; the configuration was checked.
func (c *Config) delayRules() delay.Rules {
	levels, _ := delay.ParseLevels(c.DelayLevels)
	return delay.Rules{Levels: levels, TimerOff: true}
}

// openDelayed loads how far the delivery has come. Nothing is delivered yet.
func (b *Broker) openDelayed() error {
	d := &b.delayed
	var err error
	if d.progress, err = progress.Open(vfs.OS(), b.configDir()); err != nil {
		return err
	}
	d.levels, err = delay.New(delay.Config{
		Dir: b.configDir(), Store: b.store, Levels: d.rules.Levels,
		Interval: ms(b.cfg.FlushDelayOffsetMS), AllowEmpty: b.cfg.AllowEmpty, Progress: d.progress,
		Now: time.Now, Notice: b.notice, Delivered: b.count.delivered,
	})
	return err
}

// start begins to deliver.
func (d *delayed) start() { d.levels.Start() }

// close stops the delivery and writes how far it came. The store is still open.
func (d *delayed) close() error {
	var err error
	if d.levels != nil {
		err = d.levels.Close()
	}
	if d.progress != nil {
		if closeErr := d.progress.Close(); err == nil {
			err = closeErr
		}
	}
	return err
}

// arrived tells those that deliver later what came into their topics.
func (d *delayed) arrived(m *storage.Dispatched) {
	if m.Topic == protocol.ScheduleTopic {
		d.levels.Wake(m.Queue)
	}
}

// sendBacks makes the processor of messages that consumers send back.
func (b *Broker) sendBacks() *processor.SendBacks {
	return &processor.SendBacks{
		Store: b.store, Topics: b.topics, Groups: b.groups, Delays: &b.delayed.rules,
		Counters: b.count, StoreHost: b.advertised.Host,
		SyncFlush: b.cfg.FlushDiskType == "SYNC_FLUSH", Writable: b.writable, NowMS: nowMS,
	}
}
