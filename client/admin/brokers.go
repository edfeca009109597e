// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

// RuntimeInfo is how a broker is doing. What a broker does not tell is zero.
type RuntimeInfo struct {
	Version   string // as V5_5_0
	StartedAt time.Time
	Active    bool // it serves as master

	// Rates over 10 s, 60 s and 600 s, in messages a second.
	PutTPS, GetFoundTPS, GetMissTPS, GetTotalTPS, TransferredTPS [3]float64

	// Messages since midnight, in the whole day before, and until the last midnight.
	PutToday, PutYesterday, GetToday, GetYesterday int64

	LogMin, LogMax       int64     // bytes; bounds of the message log
	DispatchBehind       int64     // bytes of the log that queues do not show yet
	DiskRatio            float64   // of the log's disk, 0 to 1
	Earliest             time.Time // when the oldest message was stored
	PageCacheLock        time.Duration
	SendQueue, PullQueue PoolInfo

	Table map[string]string // everything, in RocketMQ's names
}

// PoolInfo is a queue of requests in a broker.
type PoolInfo struct {
	Size, Capacity int
	HeadWait       time.Duration // of the oldest request in it
}

// RuntimeInfo asks each broker of the target how it is doing.
func (a *Admin) RuntimeInfo(ctx context.Context, at Target) ([]Answer[RuntimeInfo], error) {
	op := "runtime info"
	return collect(ctx, a, op, at, func(ctx context.Context, b Broker) (RuntimeInfo, error) {
		var kv protocol.KVTable
		if err := a.askFor(ctx, op, b, remoting.GetBrokerRuntimeInfo, nil, &kv); err != nil {
			return RuntimeInfo{}, err
		}
		return runtimeOf(kv.Table), nil
	})
}

// numbers reads the texts of a runtime table; what is no number is zero.
type numbers map[string]string

func (n numbers) int(key string) int64 {
	v, _ := strconv.ParseInt(n[key], 10, 64)
	return v
}

func (n numbers) float(key string) float64 {
	v, _ := strconv.ParseFloat(n[key], 64)
	return v
}

func (n numbers) rates(key string) (r [3]float64) {
	for i, text := range strings.Fields(n[key]) {
		if i < len(r) {
			r[i], _ = strconv.ParseFloat(text, 64)
		}
	}
	return r
}

func (n numbers) pool(name string) PoolInfo {
	return PoolInfo{
		Size:     int(n.int(name + "ThreadPoolQueueSize")),
		Capacity: int(n.int(name + "ThreadPoolQueueCapacity")),
		HeadWait: millis(n.int(name + "ThreadPoolQueueHeadWaitTimeMills")),
	}
}

func runtimeOf(table map[string]string) RuntimeInfo {
	n := numbers(table)
	morning, now := n.int("msgPutTotalTodayMorning"), n.int("msgPutTotalTodayNow")
	getMorning, getNow := n.int("msgGetTotalTodayMorning"), n.int("msgGetTotalTodayNow")
	return RuntimeInfo{
		Version: table["brokerVersionDesc"], StartedAt: timeOf(n.int("bootTimestamp")),
		Active: table["brokerActive"] == "true",
		PutTPS: n.rates("putTps"), GetFoundTPS: n.rates("getFoundTps"),
		GetMissTPS: n.rates("getMissTps"), GetTotalTPS: n.rates("getTotalTps"),
		TransferredTPS: n.rates("getTransferredTps"),
		PutToday:       now - morning, PutYesterday: morning - n.int("msgPutTotalYesterdayMorning"),
		GetToday: getNow - getMorning, GetYesterday: getMorning - n.int("msgGetTotalYesterdayMorning"),
		LogMin: n.int("commitLogMinOffset"), LogMax: n.int("commitLogMaxOffset"),
		DispatchBehind: n.int("dispatchBehindBytes"), DiskRatio: n.float("commitLogDiskRatio"),
		Earliest:      timeOf(n.int("earliestMessageTimeStamp")),
		PageCacheLock: millis(n.int("pageCacheLockTimeMills")),
		SendQueue:     n.pool("send"), PullQueue: n.pool("pull"),
		Table: table,
	}
}

// BrokerConfig is what is in force at a broker, in the keys of RocketMQ's broker.conf.
type BrokerConfig struct {
	Values  map[string]string
	Version string // of the configuration, as the broker writes it; may be empty
}

// BrokerConfig asks each broker of the target for its configuration.
func (a *Admin) BrokerConfig(ctx context.Context, at Target) ([]Answer[BrokerConfig], error) {
	op := "broker configuration"
	return collect(ctx, a, op, at, func(ctx context.Context, b Broker) (BrokerConfig, error) {
		res, err := a.ask(ctx, op, b, remoting.GetBrokerConfig, nil, nil)
		if err != nil {
			return BrokerConfig{}, err
		}
		var h protocol.BrokerConfigResponse
		if err := h.Decode(res.Command); err != nil {
			return BrokerConfig{}, explain(op, err)
		}
		return BrokerConfig{Values: parseProperties(res.Body), Version: h.Version}, nil
	})
}

// UpdateBrokerConfig changes values at run time at each broker of the target. A broker takes all of
// them or none; keys that it does not know have no effect, as in RocketMQ.
func (a *Admin) UpdateBrokerConfig(
	ctx context.Context, values map[string]string, at Target,
) ([]Done, error) {
	op := "update broker configuration"
	body, err := renderProperties(op, values)
	if err != nil {
		return nil, err
	}
	return a.tell(ctx, op, at, remoting.UpdateBrokerConfig, nil, body)
}

// Stats is one of a broker's statistics.
type Stats struct{ Minute, Hour, Day StatsWindow }

// StatsWindow is a statistic over a time.
type StatsWindow struct {
	Sum     int64
	TPS     float64 // a second
	Average float64 // of one call, for example bytes of a message
}

// Stats asks each broker of the target for a statistic by RocketMQ's names, for example
// TOPIC_PUT_NUMS of a topic, or GROUP_GET_NUMS of topic@group. A broker that never counted it
// answers with an error.
func (a *Admin) Stats(ctx context.Context, name, key string, at Target) ([]Answer[Stats], error) {
	op := "statistic " + name + " of " + key
	return collect(ctx, a, op, at, func(ctx context.Context, b Broker) (Stats, error) {
		var d protocol.BrokerStatsData
		err := a.askFor(ctx, op, b, remoting.ViewBrokerStatsData,
			&protocol.BrokerStatsRequest{StatsName: name, StatsKey: key}, &d)
		return Stats{statsOf(d.StatsMinute), statsOf(d.StatsHour), statsOf(d.StatsDay)}, err
	})
}

func statsOf(i protocol.BrokerStatsItem) StatsWindow {
	return StatsWindow{Sum: i.Sum, TPS: i.TPS, Average: i.AvgPT}
}

// Replication is how far the slaves of a master are.
type Replication struct {
	Master   bool
	LogMax   int64 // bytes; end of the master's log
	InSync   int   // slaves
	Replicas []Replica
}

// Replica is one slave as its master sees it.
type Replica struct {
	Addr        string
	Acked       int64 // bytes of the log
	Behind      int64 // bytes
	BytesPerSec int64
	InSync      bool
}

// Replication asks each broker of the target how far its slaves are.
func (a *Admin) Replication(ctx context.Context, at Target) ([]Answer[Replication], error) {
	op := "replication status"
	return collect(ctx, a, op, at, func(ctx context.Context, b Broker) (Replication, error) {
		var i protocol.HARuntimeInfo
		if err := a.askFor(ctx, op, b, remoting.GetBrokerHAStatus, nil, &i); err != nil {
			return Replication{}, err
		}
		r := Replication{
			Master: i.Master, LogMax: i.MasterCommitLogMaxOffset, InSync: int(i.InSyncSlaveNums),
		}
		for _, x := range i.HAConnectionInfo {
			r.Replicas = append(r.Replicas, Replica{
				Addr: x.Addr, Acked: x.SlaveAckOffset, Behind: x.Diff,
				BytesPerSec: x.TransferredByteInSecond, InSync: x.InSync,
			})
		}
		return r, nil
	})
}

// CleanExpiredQueues has brokers delete queue files below the start of their log.
func (a *Admin) CleanExpiredQueues(ctx context.Context, at Target) ([]Done, error) {
	return a.tell(ctx, "clean expired queues", at, remoting.CleanExpiredConsumeQueue, nil, nil)
}

// DeleteExpiredLogs has brokers delete the log files that are past their time now, instead of at
// the next look.
func (a *Admin) DeleteExpiredLogs(ctx context.Context, at Target) ([]Done, error) {
	return a.tell(ctx, "delete expired log files", at, remoting.DeleteExpiredCommitLog, nil, nil)
}
