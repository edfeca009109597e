// SPDX-License-Identifier: Apache-2.0

// GET_BROKER_RUNTIME_INFO (28), after RocketMQ's AdminBrokerProcessor. Every key that dashboards
// read is there; what this broker does not have, such as thread pool queues, is shown as empty.

package processor

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/skylarkmq/skylark/engine/stats"
	"github.com/skylarkmq/skylark/storage"
)

// versionText is the name of the RocketMQ release whose protocol this broker speaks.
const versionText = "V5_5_0"

// Runtime returns the table of GET_BROKER_RUNTIME_INFO.
func (p *Admin) Runtime() map[string]string {
	now := p.Now()
	info := p.Store.Info()
	table := map[string]string{
		"bootTimestamp":                   number(p.BootTime.UnixMilli()),
		"runtime":                         upTime(now.Sub(p.BootTime)),
		"brokerActive":                    "true",
		"brokerVersionDesc":               versionText,
		"startAcceptSendRequestTimeStamp": "0",
		"pageCacheLockTimeMills":          "0",
		"earliestMessageTimeStamp":        number(p.Store.EarliestTime()),
	}
	addStore(table, info)
	addStatistics(table, p.Stats.Broker().Report(now.UnixMilli()))
	addPools(table)
	if p.RuntimeInfo != nil {
		p.RuntimeInfo(table)
	}
	return table
}

func number(n int64) string { return strconv.FormatInt(n, 10) }

// double is a number as Java writes a double, with a point in any case.
func double(v float64) string {
	text := strconv.FormatFloat(v, 'f', -1, 64)
	if !strings.Contains(text, ".") {
		text += ".0"
	}
	return text
}

func upTime(d time.Duration) string {
	s := max(0, int64(d/time.Second))
	return fmt.Sprintf("[ %d days, %d hours, %d minutes, %d seconds ]",
		s/86400, s/3600%24, s/60%60, s%60)
}

func addStore(table map[string]string, info storage.Info) {
	ratio := "-1.0"
	if info.DiskUsedPercent >= 0 {
		ratio = double(float64(info.DiskUsedPercent) / 100)
	}
	table["commitLogMinOffset"] = number(int64(info.Min))
	table["commitLogMaxOffset"] = number(int64(info.Wrote))
	table["commitLogDiskRatio"] = ratio
	table["consumeQueueDiskRatio"] = ratio
	table["dispatchBehindBytes"] = number(max(0, int64(info.Wrote-info.Dispatched)))
	table["dispatchMaxBuffer"] = "0"
	table["remainHowManyDataToFlush"] = size(max(0, int64(info.Wrote-info.Flushed)))
	table["remainTransientStoreBufferNumbs"] = "2147483647" // no transient pool, as the reference
}

// size is a number of bytes for people, in binary units.
func size(n int64) string {
	if n < 1024 {
		return number(n) + " B"
	}
	v, unit := float64(n)/1024, 0
	for v >= 1024 && unit < 5 {
		v, unit = v/1024, unit+1
	}
	return fmt.Sprintf("%.1f %ciB", v, "KMGTPE"[unit])
}

func addStatistics(table map[string]string, r stats.Report) {
	table["msgPutTotalYesterdayMorning"] = number(r.Put.YesterdayMorning)
	table["msgPutTotalTodayMorning"] = number(r.Put.TodayMorning)
	table["msgPutTotalTodayNow"] = number(r.Put.Now)
	table["msgGetTotalYesterdayMorning"] = number(r.Get.YesterdayMorning)
	table["msgGetTotalTodayMorning"] = number(r.Get.TodayMorning)
	table["msgGetTotalTodayNow"] = number(r.Get.Now)
	times := max(1, r.Put.Now)
	table["putMessageTimesTotal"] = number(times)
	table["putMessageFailedTimes"] = number(r.PutFailed)
	table["putMessageSizeTotal"] = number(r.PutBytes)
	table["putMessageAverageSize"] = double(float64(r.PutBytes) / float64(times))
	table["putMessageEntireTimeMax"] = number(r.PutMaxMS)
	table["getMessageEntireTimeMax"] = number(r.GetMaxMS)
	table["putMessageDistributeTime"] = r.PutTimes
	table["putLatency99"] = fmt.Sprintf("%.2f", r.PutMS99)
	table["putLatency999"] = fmt.Sprintf("%.2f", r.PutMS999)
	table["putTps"] = r.PutTPS
	table["getFoundTps"] = r.FoundTPS
	table["getMissTps"] = r.MissTPS
	table["getTotalTps"] = r.TotalTPS
	table["getTransferredTps"] = r.TransferredTPS
	for _, key := range [...]string{
		"timerReadBehind", "timerOffsetBehind", "timerCongestNum", "timerEnqueueTps",
		"timerDequeueTps",
	} {
		table[key] = "0"
	}
}

// addPools shows the queues of RocketMQ's thread pools, always empty, with their usual capacity.
func addPools(table map[string]string) {
	for _, pool := range [...]struct{ name, capacity string }{
		{"send", "10000"},
		{"pull", "100000"},
		{"litePull", "100000"},
		{"query", "20000"},
		{"ack", "100000"},
	} {
		table[pool.name+"ThreadPoolQueueSize"] = "0"
		table[pool.name+"ThreadPoolQueueCapacity"] = pool.capacity
		table[pool.name+"ThreadPoolQueueHeadWaitTimeMills"] = "0"
	}
	table["EndTransactionQueueSize"] = "0"
	table["EndTransactionThreadPoolQueueCapacity"] = "100000"
}
