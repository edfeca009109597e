// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"strconv"
	"time"

	"github.com/skylarkmq/skylark/engine/delay"
	"github.com/skylarkmq/skylark/engine/processor"
	"github.com/skylarkmq/skylark/engine/progress"
	"github.com/skylarkmq/skylark/engine/timer"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/vfs"
)

// delayed is what delivers messages later.
type delayed struct {
	rules    delay.Rules
	progress *progress.File
	levels   *delay.Service
	timers   *timer.Service // nil: timerWheelEnable is false
}

// delayRules are the rules for messages that ask to be delivered later; the configuration was checked.
func (c *Config) delayRules() delay.Rules {
	levels, _ := delay.ParseLevels(c.DelayLevels)
	return delay.Rules{
		Levels: levels, TimerOff: !c.TimerWheel, PrecisionMS: c.TimerPrecisionMS,
		TimerMaxMS: c.TimerMaxDelaySec * 1000,
	}
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
		Place: b.topics.Place,
	})
	if err != nil || !b.cfg.TimerWheel {
		return err
	}
	d.timers, err = timer.Open(timer.Config{
		FS: vfs.OS(), Root: b.cfg.StoreRoot, Dir: b.configDir(), Store: b.store,
		PrecisionMS: b.cfg.TimerPrecisionMS, FileSize: b.cfg.TimerLogFileSize,
		RollTicks: b.cfg.TimerRollSlots, Interval: ms(b.cfg.TimerFlushMS), Progress: d.progress,
		AllowEmpty: b.cfg.AllowEmpty, Now: time.Now, Notice: b.notice, Delivered: b.count.delivered,
		Place: b.topics.Place,
	})
	return err
}

// start begins to deliver.
func (d *delayed) start() {
	d.levels.Start()
	if d.timers != nil {
		d.timers.Start()
	}
}

// close stops the delivery and writes how far it came. The store is still open.
func (d *delayed) close() error {
	var errs []error
	if d.levels != nil {
		errs = append(errs, d.levels.Close())
	}
	if d.timers != nil {
		errs = append(errs, d.timers.Close())
	}
	if d.progress != nil {
		errs = append(errs, d.progress.Close())
	}
	return errors.Join(errs...)
}

// arrived tells those that deliver later what came into their topics.
func (d *delayed) arrived(m *storage.Dispatched) {
	switch m.Topic {
	case protocol.ScheduleTopic:
		d.levels.Wake(m.Queue)
	case protocol.TimerTopic:
		if d.timers != nil {
			d.timers.Wake()
		}
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

// timerRequests makes the processor of what concerns timer messages.
func (b *Broker) timerRequests() *processor.Timers {
	p := &processor.Timers{
		Store: b.store, Topics: b.topics, Delays: &b.delayed.rules, Counters: b.count,
		Broker: b.cfg.BrokerName, Region: b.cfg.RegionID, StoreHost: b.advertised.Host,
		Enabled: b.cfg.RecallMessage, Unwritable: b.cfg.RecallUnwritable,
		SyncFlush:    b.cfg.FlushDiskType == "SYNC_FLUSH",
		AcceptFromMS: b.cfg.StartAcceptSendMS, Writable: b.writable, NowMS: nowMS,
	}
	if b.delayed.timers != nil {
		p.Wheel = b.delayed.timers
	}
	return p
}

// runtimeInfo adds to GET_BROKER_RUNTIME_INFO how far the deliveries are.
func (d *delayed) runtimeInfo(table map[string]string) {
	for level, at := range d.levels.Offsets().OffsetTable {
		table["scheduleMessageOffset_"+strconv.Itoa(int(level))] = d.levels.Text(level, at)
	}
	if d.timers == nil {
		return
	}
	behindMS := int64(0)
	if d.timers.Pending() > 0 {
		behindMS = max(nowMS()-d.timers.TickMS(), 0)
	}
	table["timerReadBehind"] = strconv.FormatInt(behindMS/1000, 10)
	table["timerOffsetBehind"] = strconv.FormatInt(d.timers.Behind(), 10)
	table["timerCongestNum"] = strconv.FormatInt(d.timers.Pending(), 10)
}
