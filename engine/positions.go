// SPDX-License-Identifier: Apache-2.0

package engine

import "strings"

// boundPositions takes the committed offsets back that name messages which a crash took: the file of
// offsets may have been on disk before the end of the log was. Without it a consumer would pass over
// the messages that come in their place; RocketMQ does so if they come before its first pull. It is
// called once, before anything is served. After a clean stop nothing is looked at.
func (b *Broker) boundPositions() {
	if b.store.Info().Recovery.Clean {
		return
	}
	offsets, _ := b.offsets.Snapshot()
	for name, queues := range offsets {
		topic, group, ok := strings.Cut(name, "@")
		if !ok {
			continue
		}
		for queue, at := range queues {
			_, end, _ := b.store.QueueBounds([]byte(topic), queue)
			if at <= int64(end) {
				continue
			}
			b.offsets.Cap([]byte(group), []byte(topic), queue, int64(end))
			b.log.Warn("position was ahead of its queue after a crash and is set to its end",
				"group", group, "topic", topic, "queue", queue, "position", at, "end", int64(end))
		}
	}
}
