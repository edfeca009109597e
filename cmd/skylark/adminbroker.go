// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/skylarkmq/skylark/client/admin"
)

func (a *app) brokerCommands(f *adminFlags) []*cobra.Command {
	return append(a.careCommands(f),
		a.clusterListCommand(f), a.brokerStatusCommand(f), a.getBrokerConfigCommand(f),
		a.updateBrokerConfigCommand(f), a.writePermCommand(f, "wipeWritePerm"),
		a.writePermCommand(f, "addWritePerm"), a.producerCommand(f), a.haStatusCommand(f),
	)
}

// brokerRow is a line of clusterList. In and out cells are as mqadmin prints them: messages a
// second over 10 s, with the queue of requests and the wait of its head.
type brokerRow struct {
	Cluster   string  `json:"cluster" col:"#Cluster Name"`
	Broker    string  `json:"broker" col:"#Broker Name"`
	ID        int64   `json:"id" col:"#BID"`
	Addr      string  `json:"addr" col:"#Addr"`
	Version   string  `json:"version" col:"#Version"`
	In        string  `json:"-" col:"#InTPS(LOAD)"`
	Out       string  `json:"-" col:"#OutTPS(LOAD)"`
	Wait      int64   `json:"page_cache_wait_ms" col:"#PCWait(ms)"`
	Hours     float64 `json:"kept_hours" col:"#Hour"`
	Space     float64 `json:"disk_ratio" col:"#SPACE"`
	Activated bool    `json:"activated" col:"#ACTIVATED"`
	InTPS     float64 `json:"in_tps"`
	OutTPS    float64 `json:"out_tps"`
}

// totalsRow is a line of clusterList -m.
type totalsRow struct {
	Cluster  string `json:"cluster" col:"#Cluster Name"`
	Broker   string `json:"broker" col:"#Broker Name"`
	InYest   int64  `json:"in_yesterday" col:"#InTotalYest"`
	OutYest  int64  `json:"out_yesterday" col:"#OutTotalYest"`
	InToday  int64  `json:"in_today" col:"#InTotalToday"`
	OutToday int64  `json:"out_today" col:"#OutTotalToday"`
}

func (a *app) clusterListCommand(f *adminFlags) *cobra.Command {
	var more bool
	var every int
	var cluster string
	cmd := a.adminLeaf(f, "clusterList", "List the brokers of each cluster",
		func(ctx context.Context, ad *admin.Admin) error {
			if every < 0 {
				return misuse{errors.New("--interval is negative")}
			}
			for {
				if err := a.clusterList(ctx, ad, cluster, more); err != nil || every == 0 {
					return err
				}
				select {
				case <-ctx.Done():
					return nil
				case <-time.After(time.Duration(every) * time.Second):
				}
			}
		})
	fl := cmd.Flags()
	fl.BoolVarP(&more, "moreStats", "m", false, "messages of today and yesterday instead")
	fl.IntVarP(&every, "interval", "i", 0, "again every so many seconds; 0: once")
	fl.StringVarP(&cluster, "clusterName", "c", "", "only this cluster")
	return cmd
}

func (a *app) clusterList(ctx context.Context, ad *admin.Admin, cluster string, more bool) error {
	answers, err := ad.RuntimeInfo(ctx, admin.InCluster(cluster).WithSlaves())
	if len(answers) == 0 {
		return err
	}
	var rows []brokerRow
	var totals []totalsRow
	for _, x := range answers {
		b, i := x.Broker, x.Value
		totals = append(totals, totalsRow{
			b.Cluster, b.Name, i.PutYesterday, i.GetYesterday, i.PutToday, i.GetToday,
		})
		r := brokerRow{
			Cluster: b.Cluster, Broker: b.Name, ID: b.ID, Addr: b.Addr, Version: i.Version,
			In:   load(i.PutTPS[0], i.SendQueue),
			Out:  load(i.GetTotalTPS[0], i.PullQueue),
			Wait: i.PageCacheLock.Milliseconds(), Space: i.DiskRatio, Activated: i.Active,
			InTPS: i.PutTPS[0], OutTPS: i.GetTotalTPS[0],
		}
		if !i.Earliest.IsZero() {
			r.Hours = time.Since(i.Earliest).Hours()
		}
		rows = append(rows, r)
	}
	if more {
		return errors.Join(printRows(a, totals), a.partly(err))
	}
	return errors.Join(printRows(a, rows), a.partly(err))
}

func load(tps float64, p admin.PoolInfo) string {
	return fmt.Sprintf("%.2f(%d,%dms)", tps, p.Size, p.HeadWait.Milliseconds())
}

func (a *app) brokerStatusCommand(f *adminFlags) *cobra.Command {
	var p place
	cmd := a.adminLeaf(f, "brokerStatus", "Show all that brokers tell about themselves",
		func(ctx context.Context, ad *admin.Admin) error {
			at, err := p.target()
			if err != nil {
				return err
			}
			answers, err := ad.RuntimeInfo(ctx, at)
			if len(answers) == 0 {
				return err
			}
			for _, x := range answers {
				if err := a.printTable(x.Broker, x.Value.Table, ": "); err != nil {
					return err
				}
			}
			return a.partly(err)
		})
	p.flags(cmd, "brokerAddr", "clusterName")
	return cmd
}

// printTable prints what one broker said, sorted; nothing for one that said nothing.
func (a *app) printTable(b admin.Broker, table map[string]string, between string) error {
	if len(table) == 0 {
		return nil
	}
	if a.json {
		return a.printJSON(map[string]any{"addr": b.Addr, "broker": b.Name, "values": table})
	}
	if _, err := fmt.Fprintf(a.stdout, "============%s============\n", b.Addr); err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(table)) {
		if _, err := fmt.Fprintf(a.stdout, "%-50s%s%s\n", key, between, table[key]); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) getBrokerConfigCommand(f *adminFlags) *cobra.Command {
	var p place
	cmd := a.adminLeaf(f, "getBrokerConfig", "Show the configuration in force at brokers",
		func(ctx context.Context, ad *admin.Admin) error {
			at, err := p.target()
			if err != nil {
				return err
			}
			answers, err := ad.BrokerConfig(ctx, at.WithSlaves())
			if len(answers) == 0 {
				return err
			}
			for _, x := range answers {
				if err := a.printTable(x.Broker, x.Value.Values, "=  "); err != nil {
					return err
				}
			}
			return a.partly(err)
		})
	p.flags(cmd, "brokerAddr", "clusterName")
	return cmd
}

func (a *app) updateBrokerConfigCommand(f *adminFlags) *cobra.Command {
	var p place
	var all, key, value string
	cmd := a.adminLeaf(f, "updateBrokerConfig", "Change a value of brokers at run time",
		func(ctx context.Context, ad *admin.Admin) error {
			everywhere, err := truth("updateAllBroker", all, false)
			if err != nil {
				return err
			}
			at, err := p.target()
			if err != nil {
				return err
			}
			if everywhere {
				at = at.WithSlaves()
			}
			done, err := ad.UpdateBrokerConfig(ctx, map[string]string{key: value}, at)
			return a.outcome("update broker config success, {}", done, err)
		})
	p.flags(cmd, "brokerAddr", "clusterName")
	fl := cmd.Flags()
	fl.StringVarP(&all, "updateAllBroker", "a", "", "slaves too (true|false)")
	fl.StringVarP(&key, "key", "k", "", "key of broker.conf (required)")
	fl.StringVarP(&value, "value", "v", "", "value (required)")
	return need(cmd, "key", "value")
}

// permRow is what a name server did.
type permRow struct {
	NameServer string `json:"name_server"`
	Broker     string `json:"broker"`
	Topics     int    `json:"topics"`
}

// writePermCommand is wipeWritePerm or addWritePerm.
func (a *app) writePermCommand(f *adminFlags, use string) *cobra.Command {
	var broker string
	verb, short := "wipe", "Have name servers tell clients that a broker takes no messages"
	if use == "addWritePerm" {
		verb, short = "add", "Take back wipeWritePerm"
	}
	cmd := a.adminLeaf(f, use, short, func(ctx context.Context, ad *admin.Admin) error {
		call := ad.WipeWritePerm
		if verb == "add" {
			call = ad.AddWritePerm
		}
		answers, err := call(ctx, broker)
		if len(answers) == 0 {
			return err
		}
		for _, x := range answers {
			if x.Err != nil {
				continue
			}
			r := permRow{x.Broker.Addr, broker, x.Value}
			if a.json {
				err = errors.Join(err, a.printJSON(r))
				continue
			}
			_, _ = fmt.Fprintf(a.stdout, "%s write perm of broker[%s] in name server[%s] OK, %d\n",
				verb, broker, r.NameServer, r.Topics)
		}
		return a.partly(err)
	})
	cmd.Flags().StringVarP(&broker, "brokerName", "b", "", "name of the broker (required)")
	return need(cmd, "brokerName")
}

func (a *app) producerCommand(f *adminFlags) *cobra.Command {
	var broker string
	cmd := a.adminLeaf(f, "producer", "List the producers that are connected to a broker",
		func(ctx context.Context, ad *admin.Admin) error {
			groups, err := ad.Producers(ctx, admin.AtAddr(broker))
			if err != nil {
				return err
			}
			type row struct {
				Group string    `json:"group" col:"#Group"`
				ID    string    `json:"client_id" col:"#ClientId"`
				Addr  string    `json:"addr" col:"#ClientAddr"`
				Lang  string    `json:"language" col:"#Language"`
				Vers  string    `json:"version" col:"#Version"`
				Last  time.Time `json:"last_seen,omitzero" col:"#LastUpdate"`
			}
			var rows []row
			for _, group := range slices.Sorted(maps.Keys(groups)) {
				for _, m := range groups[group] {
					rows = append(rows, row{group, m.ClientID, m.Addr, m.Language, m.Version, m.LastSeen})
				}
			}
			return printRows(a, rows)
		})
	cmd.Flags().StringVarP(&broker, "broker", "b", "", "broker as host:port (required)")
	return need(cmd, "broker")
}

func (a *app) haStatusCommand(f *adminFlags) *cobra.Command {
	var p place
	cmd := a.adminLeaf(f, "haStatus", "Show how far the slaves of masters are",
		func(ctx context.Context, ad *admin.Admin) error {
			at, err := p.target()
			if err != nil {
				return err
			}
			answers, err := ad.Replication(ctx, at)
			if len(answers) == 0 {
				return err
			}
			for _, x := range answers {
				if x.Err != nil {
					continue
				}
				if a.json {
					err = errors.Join(err, a.printJSON(map[string]any{
						"addr": x.Broker.Addr, "master": x.Value.Master, "log_max": x.Value.LogMax,
						"in_sync": x.Value.InSync, "replicas": x.Value.Replicas,
					}))
					continue
				}
				_, _ = fmt.Fprintf(a.stdout, "#MasterAddr\t%s\n#MasterCommitLogMaxOffset\t%d\n#SlaveNum\t%d\n"+
					"#InSyncSlaveNum\t%d\n", x.Broker.Addr, x.Value.LogMax, len(x.Value.Replicas), x.Value.InSync)
				for _, r := range x.Value.Replicas {
					_, _ = fmt.Fprintf(a.stdout, "%s acked=%d behind=%d in-sync=%t\n",
						r.Addr, r.Acked, r.Behind, r.InSync)
				}
			}
			return a.partly(err)
		})
	p.flags(cmd, "brokerAddr", "clusterName")
	return cmd
}

// careCommands are those of housekeeping.
func (a *app) careCommands(f *adminFlags) []*cobra.Command {
	var list []*cobra.Command
	for _, k := range []struct {
		call       func(*admin.Admin, context.Context, admin.Target) ([]admin.Done, error)
		use, short string
	}{
		{
			(*admin.Admin).CleanUnusedTopics, "cleanUnusedTopic",
			"Delete queue files of topics that are gone",
		},
		{
			(*admin.Admin).CleanExpiredQueues, "cleanExpiredCQ",
			"Delete queue files below the start of the log",
		},
		{
			(*admin.Admin).DeleteExpiredLogs, "deleteExpiredCommitLog",
			"Delete log files that are past their time",
		},
	} {
		var p place
		cmd := a.adminLeaf(f, k.use, k.short, func(ctx context.Context, ad *admin.Admin) error {
			at := admin.Everywhere()
			if p.broker != "" || p.cluster != "" {
				var err error
				if at, err = p.target(); err != nil {
					return err
				}
			}
			done, err := k.call(ad, ctx, at)
			return a.outcome("success, {}", done, err)
		})
		p.flags(cmd, "brokerAddr", "cluster")
		list = append(list, cmd)
	}
	return list
}
