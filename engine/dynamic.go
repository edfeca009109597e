// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/skylarkmq/skylark/engine/settings"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage/vfs"
)

// dynamic is the configuration as GET_BROKER_CONFIG and UPDATE_BROKER_CONFIG see it.
//
// RocketMQ sets every known key on its running objects, paths and commands included, which has
// been used to run code on brokers (CVE-2023-33246). Here a value is data: brokerPermission takes
// effect at once; other keys are written to the configuration file, take effect at the next start,
// and the log says so; paths, and what names the configuration itself, are refused.
type dynamic struct {
	broker *Broker

	mu      sync.Mutex
	cfg     Config // what the file says, ahead of what is in force
	version protocol.DataVersion
}

func newDynamic(b *Broker) *dynamic {
	return &dynamic{
		broker: b, cfg: b.cfg, version: protocol.DataVersion{Timestamp: nowMS()},
	}
}

// Text lists every key with its value, sorted.
func (d *dynamic) Text() (string, protocol.DataVersion) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return string(settings.Format(settings.Values(&d.cfg))), d.version
}

// Update changes keys from a properties text.
func (d *dynamic) Update(text string) error {
	file, err := settings.Parse("update", []byte(text))
	if err != nil {
		return remoting.Errorf(remoting.SystemError, "string2Properties error: %v", err)
	}
	for _, e := range file.Entries {
		if d.fixed(e.Key) {
			return remoting.Errorf(remoting.NoPermission,
				"Can not update config in black list. %s cannot be changed at run time", e.Key)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	next := d.cfg
	set, err := settings.Update(&next, file)
	if err != nil {
		return remoting.Errorf(remoting.SystemError, "update config: %v", err)
	}
	if len(set) == 0 {
		return nil
	}
	if next.Path != "" {
		data := settings.Format(settings.Values(&next))
		if err := vfs.WriteFileAtomic(next.Path, data); err != nil {
			return remoting.Errorf(remoting.SystemError, "write %s: %v", next.Path, err)
		}
	}
	d.cfg = next
	d.version.Next(nowMS())
	d.apply(set)
	return nil
}

// fixed keys cannot be changed from afar.
func (d *dynamic) fixed(key string) bool {
	switch key {
	case "brokerConfigPath", "rocketmqHome", "configBlackList", "bindAddress",
		"readOnlyCommitLogStorePaths":
		return true
	}
	return strings.HasPrefix(key, "storePath") ||
		slices.Contains(strings.Split(d.broker.cfg.ConfigBlackList, ";"), key)
}

// apply brings into force what can be, and says what waits for the next start.
func (d *dynamic) apply(set []string) {
	b := d.broker
	for _, key := range set {
		if key != "brokerPermission" {
			b.log.Warn("a changed setting takes effect at the next start", "key", key)
			continue
		}
		b.permission.Store(d.cfg.BrokerPermission)
		if err := b.topics.Bump(); err != nil {
			b.log.Error("the topic table is not persisted", "err", fmt.Sprint(err))
		}
		ctx, cancel := context.WithTimeout(context.Background(), announceTopicWithin)
		defer cancel()
		if err := b.register.RegisterAll(ctx); err != nil {
			b.log.Warn("name servers do not know the changed permission yet", "err", err)
		}
	}
}
