// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"time"

	"github.com/skylarkmq/skylark/engine/filter"
	"github.com/skylarkmq/skylark/engine/group"
	"github.com/skylarkmq/skylark/engine/lag"
	"github.com/skylarkmq/skylark/engine/offset"
	"github.com/skylarkmq/skylark/engine/processor"
	"github.com/skylarkmq/skylark/engine/stats"
	"github.com/skylarkmq/skylark/engine/topic"
	"github.com/skylarkmq/skylark/engine/transaction"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/record"
)

// openTopics loads the table of topics.
func (b *Broker) openTopics() (err error) {
	cfg := &b.cfg
	b.topics, err = topic.Open(b.configDir(), topic.Config{
		BrokerName: cfg.BrokerName, ClusterName: cfg.ClusterName,
		AutoCreate: cfg.AutoCreateTopic, DefaultQueues: cfg.DefaultTopicQueues,
		ClusterTopicOff: !cfg.ClusterTopic, BrokerTopicOff: !cfg.BrokerTopic,
		TraceTopic: cfg.TraceTopic, TraceTopicName: cfg.TraceTopicName,
		ReviveQueues: cfg.ReviveQueues, TimerWheel: cfg.TimerWheel, AllowEmpty: cfg.AllowEmpty,
		Notice: b.notice, OnChange: b.topicsChanged,
	})
	return err
}

// openTables loads the JSON tables of the configuration folder.
func (b *Broker) openTables() error {
	if err := b.openTopics(); err != nil {
		return err
	}
	var err error
	cfg, dir := &b.cfg, b.configDir()
	b.groups, err = group.OpenConfigs(dir, group.ConfigsConfig{
		AutoCreate: cfg.AutoCreateGroup, CreateSystem: cfg.EnableCreateSysGroup,
		AllowEmpty: cfg.AllowEmpty, Notice: b.notice,
	})
	if err != nil {
		return err
	}
	b.modes, err = group.OpenModes(dir, cfg.AllowEmpty, b.notice)
	if err != nil {
		return err
	}
	b.offsets, err = offset.Open(dir, offset.Config{
		Interval: ms(cfg.FlushOffsetMS), AllowEmpty: cfg.AllowEmpty, Notice: b.notice,
	})
	if err != nil {
		return err
	}
	b.filters, err = filter.Open(dir, filter.Config{
		BloomErrorPercent: cfg.FilterErrorRate, BloomConsumers: cfg.FilterConsumers,
		KeepDead: ms(cfg.FilterKeepDeadMS), CacheBytes: cfg.FilterCacheBytes,
		AllowEmpty: cfg.AllowEmpty, Notice: b.notice,
	})
	if err != nil {
		return err
	}
	b.locks, err = group.OpenLocks(dir, cfg.AllowEmpty, time.Now, b.notice)
	if err != nil {
		return err
	}
	b.halves, err = transaction.OpenCounts(
		dir, cfg.AllowEmpty, ms(cfg.HalfCountsMS), time.Now, b.notice)
	if err != nil {
		return err
	}
	b.lag = lag.New(ms(cfg.StuckMS))
	b.stats = stats.New(stats.Config{Cluster: cfg.ClusterName})
	b.members = group.NewMembers(group.MembersConfig{
		ChannelTimeout:      ms(cfg.ChannelExpiredMS),
		SubscriptionTimeout: ms(cfg.SubscriptionExpiredMS),
		RejectPull:          cfg.RejectPullConsumer, ProducersOff: !cfg.RegisterProducer,
		RefuseDifferent: cfg.RefuseDifferent,
		Admit:           processor.Admission(b.topics, b.groups, b.notice),
		Registered:      b.filters.Register, Left: b.filters.Unregister,
		ScanPeriod: min(10*time.Second, ms(cfg.StuckMS)/2), Scanned: b.watchConsumers,
		ProducerJoined: func(name string) { b.transactions.ProducerJoined(name) },
		NotifyChange:   b.notifier(), Expired: closeChannels, Notice: b.notice,
	})
	return nil
}

// notifier tells members of a group to rebalance, unless the broker is told not to.
func (b *Broker) notifier() func(group string, chs []group.Channel) {
	if !b.cfg.NotifyConsumerChange {
		return nil
	}
	return processor.NotifyChange(b.calls)
}

// topicsChanged tells the name servers, before the change is answered.
func (b *Broker) topicsChanged(changed []string) {
	if b.register != nil {
		ctx, cancel := context.WithTimeout(context.Background(), announceTopicWithin)
		defer cancel()
		if err := b.register.RegisterTopic(ctx, changed...); err != nil {
			b.log.Warn("name servers do not know a changed topic yet", "topic", changed, "err", err)
		}
	}
}

// storeConfig is the store's part of the configuration.
func (b *Broker) storeConfig() storage.Config {
	cfg := &b.cfg
	s := storage.DefaultConfig(cfg.StoreRoot)
	s.CommitLogDir, s.SegmentSize = cfg.CommitLogDir, cfg.CommitLogFileSize
	s.QueueFileSize, s.BatchFileSize = cfg.QueueFileSize, cfg.BatchFileSize
	s.BatchTopic = b.topics.Batch
	s.CommitLogReadOnly = cfg.CommitLogReadOnly
	s.IndexSlots, s.IndexEntries, s.IndexEnable = cfg.IndexSlots, cfg.IndexEntries, cfg.IndexEnable
	s.MaxMessageSize = cfg.MaxMessageSize
	s.SyncFlush, s.Prewrite = cfg.FlushDiskType == "SYNC_FLUSH", cfg.PrewriteLog
	s.FlushInterval, s.FlushThorough = ms(cfg.FlushIntervalMS), ms(cfg.FlushThoroughMS)
	s.FlushLeastPages = cfg.FlushLeastPages
	s.MaxTransferBytesInMemory, s.MaxTransferCountInMemory = cfg.TransferBytesMemory,
		cfg.TransferCountMemory
	s.MaxTransferBytesInDisk, s.MaxTransferCountInDisk = cfg.TransferBytesDisk,
		cfg.TransferCountDisk
	s.AccessInMemoryMaxRatio, s.DiskFullRatio = cfg.MemoryMaxRatio, cfg.DiskWarningRatio
	s.DiskFreeRatio = cfg.DiskCleanRatio
	hours, _ := storage.ParseHours(cfg.DeleteWhen) // checked with the configuration
	s.Retention = storage.Retention{
		Keep: time.Duration(cfg.FileReservedHours) * time.Hour, Hours: hours,
		MaxUsedRatio: cfg.DiskMaxUsedRatio, Forcibly: cfg.CleanForcibly,
		Every: ms(cfg.CleanIntervalMS), Pause: ms(cfg.DeletePauseMS), Batch: cfg.DeleteBatchMax,
	}
	if cfg.DeleteUnconsumed != "delete" {
		s.Retention.Unread = b.unread
	}
	s.BallastBytes = cfg.BallastBytes
	s.DelayLevels = b.delayed.rules.Levels
	s.Progress = cfg.Progress
	s.Damage, s.AllowEmpty, s.Lock = cfg.Damage, cfg.AllowEmpty, cfg.Lock
	s.Notice = b.notice
	s.OnDispatched = b.dispatched
	s.OnFlushed = b.flushedTo
	s.MaxFilterBytes = cfg.FilterMessageSize
	return s
}

// dispatched wakes the pulls that wait for what has become visible.
func (b *Broker) dispatched(ds []storage.Dispatched) {
	for i := range ds {
		b.held.Arrived(ds[i].Topic, ds[i].Queue, int64(ds[i].End))
		b.delayed.arrived(&ds[i])
		b.pops.arrived(&ds[i])
	}
}

// flushedTo releases the sends that wait for the disk.
func (b *Broker) flushedTo(at record.PhysicalOffset) {
	if b.flushed != nil {
		b.flushed.Advance(int64(at))
	}
}

// wire fills what the processors share.
func (b *Broker) wire() {
	b.wireTransactions()
	b.sendShared = processor.SendShared{
		Store: b.store, Topics: b.topics, Groups: b.groups, Locks: b.locks, Counters: b.count,
		Delays: &b.delayed.rules, Broker: b.cfg.BrokerName,
		UniqueIDs: record.NewUniqueIDs(b.advertised.Host.Addr()),
		Cluster:   b.cfg.ClusterName, Region: b.cfg.RegionID, TraceOn: b.cfg.TraceOn,
		StoreHost: b.advertised.Host, MaxMessageSize: b.cfg.MaxMessageSize,
		AcceptFromMS: b.cfg.StartAcceptSendMS, Writable: b.writable, NowMS: nowMS,
		Transactions: b.transactions, RejectHalf: b.cfg.RejectTransactions,
		Flushed: b.flushed, Hand: b.workers.hand,
	}
	b.pullShared = processor.PullShared{
		Store: b.store, Topics: b.topics, Groups: b.groups, Members: b.members,
		Offsets: b.offsets, Held: b.held, Filters: b.filters,
		PropertyFilter: b.cfg.PropertyFilter, FilterRetry: b.cfg.FilterRetry,
		Counters: b.count, Address: b.advertised.Host,
		LitePull: b.cfg.LitePullMessage, SlaveRead: b.cfg.SlaveRead,
		ServerSideResets: b.cfg.ServerSideResets, LongPolling: b.cfg.LongPolling,
		ShortPolling: ms(b.cfg.ShortPollingMS), HoldMax: ms(b.cfg.HoldMaxMS),
		Readable: b.readable, Now: time.Now, Hand: b.workers.hand, ReadCold: b.readers.hand,
	}
	b.cold, b.light = processor.Cold{}, processor.Light{}
	leaves := &processor.Leaves{
		BrokerName: b.cfg.BrokerName, ClusterName: b.cfg.ClusterName,
		BrokerAddr: b.advertised.Addr, BootTime: b.started,
		Topics: b.topics, Groups: b.groups, Members: b.members, Locks: b.locks, Modes: b.modes,
		Offsets: b.offsets, Stats: b.stats, Store: b.store, Clients: b.calls,
		Transactions: b.transactions, Settings: newDynamic(b), Now: time.Now, ClientReset: !b.cfg.ServerSideResets,
		MixedMessageType: b.cfg.EnableMixedMessageType, TopicDeleted: b.topicDeleted,
		OffsetsReset: b.held.WakeTopic,
		DelayOffsets: b.delayed.levels.Offsets, RuntimeInfo: func(table map[string]string) {
			b.delayed.runtimeInfo(table)
			b.showHousekeeping(table)
		},
		PropertyFilter: b.propertyFilter(), FromLastStrict: b.cfg.FromLastStrict,
		DefaultMode: protocol.MessageRequestMode(b.cfg.RequestMode), DefaultPopShare: b.cfg.PopShareQueues,
	}
	backs := b.sendBacks()
	processor.RegisterCold(b.cold, leaves)
	processor.RegisterLight(b.light, leaves, backs)
	backs.Register(b.cold)
	b.timerRequests().Register(b.cold)
	b.replyProcessor().Register(b.cold)
	query := &processor.Query{
		Store: b.store, DefaultMax: b.cfg.QueryMax, AnswerMax: remoting.MaxFrame / 2,
	}
	query.Register(b.cold)
}

// propertyFilter compiles an SQL92 expression for those who ask whether it could be; nil: never.
func (b *Broker) propertyFilter() func(text string) error {
	if !b.cfg.PropertyFilter {
		return nil
	}
	return func(text string) error {
		_, err := b.filters.Compile(text)
		return err
	}
}

// wireTransactions makes the service of half messages and lets it see what the store holds of them.
func (b *Broker) wireTransactions() {
	b.transactions = transaction.New(transaction.Config{
		Counts: b.halves,
		Store:  b.store, Offsets: b.offsets, StoreHost: b.advertised.Host,
		TimeOut: ms(b.cfg.TransactionTimeOutMS), Interval: ms(b.cfg.TransactionCheckMS),
		KeepFor:  time.Duration(b.cfg.FileReservedHours) * time.Hour,
		CheckMax: b.cfg.TransactionCheckMax, OpMaxSize: b.cfg.TransactionOpMaxSize,
		Place: b.topics.Place,
		GiveUpTopic: func() error {
			_, err := b.topics.CreateRetry(protocol.TransCheckMaxTimeTopic, 1,
				protocol.PermRead|protocol.PermWrite, false, false)
			return err
		},
		Producer: processor.AskProducer(b.calls, b.members, b.cfg.BrokerName),
		Stored: func(topic []byte, messages, bytes int) {
			b.count.Put(topic, 1, messages, bytes)
		},
		Notice: b.notice,
	})
	b.transactions.Load()
}

func (b *Broker) replyProcessor() *processor.Replies {
	return &processor.Replies{
		Topics: b.topics, Members: b.members, Clients: b.calls, Counters: b.count, Store: b.store,
		Region: b.cfg.RegionID, TraceOn: b.cfg.TraceOn, StoreHost: b.advertised.Host,
		AcceptFromMS: b.cfg.StartAcceptSendMS,
		StoreReplies: b.cfg.StoreReplies, Writable: b.writable, NowMS: nowMS, Notice: b.notice,
	}
}

// topicDeleted wakes the pulls that are held on a topic which is gone, and tells the name servers.
func (b *Broker) topicDeleted(name string) {
	b.held.WakeTopic(name)
	b.locks.RemoveTopic(name)
	b.stats.RemoveTopic(name)
	b.filters.RemoveTopic(name)
	b.pops.removeTopic(name)
}
