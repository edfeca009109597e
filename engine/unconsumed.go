// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/storage/record"
)

// unconsumed counts messages that retention took before a group had consumed them. RocketMQ deletes
// them without a word (CleanCommitLogService looks at age and space alone). Here deleteUnconsumed says:
// warn, the default, deletes as well, and names each group before a file with such messages goes; hold
// keeps the file until the group has read it or is deleted, also when the disk fills, so that sends
// are refused then; delete does not look.
type unconsumed struct {
	// Guards what follows.
	mu   sync.Mutex
	gone map[string]int64                 // messages by topic@group
	told map[string]record.PhysicalOffset // hold: up to where a group was named last
}

// unread looks for groups that have not consumed what lies below upTo, and reports whether that keeps
// the file. A group counts for a topic that it has a position of. The cleaner calls it.
func (b *Broker) unread(upTo record.PhysicalOffset) (keep bool) {
	hold := b.cfg.DeleteUnconsumed == "hold"
	from := b.store.Info().Min // queues follow when all files of this look are gone
	offsets, _ := b.offsets.Snapshot()
	for name, queues := range offsets {
		topic, group, ok := strings.Cut(name, "@")
		if !ok || protocol.IsSystemGroup(group) {
			continue
		}
		var messages int64
		for queue, at := range queues {
			low := b.store.OffsetBehind([]byte(topic), queue, from)
			behind := b.store.OffsetBehind([]byte(topic), queue, upTo)
			messages += max(0, int64(behind)-max(at, int64(low)))
		}
		if messages == 0 {
			continue
		}
		keep = keep || hold
		b.unseen.tell(b, topic, group, messages, upTo, hold)
	}
	return keep
}

func (u *unconsumed) tell(
	b *Broker, topic, group string, messages int64, upTo record.PhysicalOffset, hold bool,
) {
	name := topic + "@" + group
	u.mu.Lock()
	defer u.mu.Unlock()
	if !hold {
		if u.gone == nil {
			u.gone = map[string]int64{}
		}
		u.gone[name] += messages
		b.log.Warn("a group loses messages that it has not consumed: their file of the log is too old, or "+
			"the disk too full", "group", group, "topic", topic, "messages", messages, "below", upTo)
		return
	}
	if u.told == nil {
		u.told = map[string]record.PhysicalOffset{}
	}
	if u.told[name] < upTo { // once for each file, not with each look
		u.told[name] = upTo
		b.log.Warn("an old file of the log is kept for a group that has not consumed it", "group", group,
			"topic", topic, "messages", messages, "below", upTo)
	}
}

// String lists what was lost: topic@group=messages.
func (u *unconsumed) String() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	var list []string
	for _, name := range slices.Sorted(maps.Keys(u.gone)) {
		list = append(list, fmt.Sprintf("%s=%d", name, u.gone[name]))
	}
	return strings.Join(list, "; ")
}
