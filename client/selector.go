// SPDX-License-Identifier: Apache-2.0

package client

import (
	"hash/fnv"
	"math/rand/v2"

	"github.com/skylarkmq/skylark/net/protocol"
)

// Selector picks the queue of a message. It may be called from several goroutines at once, and must
// keep neither argument. An index out of range fails the send.
type Selector interface {
	Select(m *Message, queues []Queue) (index int)
}

// Policy is a Selector of this package.
type Policy uint8

// The policies. The two hashes give different queues for one key, so the producers of one topic
// must agree: HashJava is what Java clients do, HashFNV what Go client v2 does. Both hash the
// ordering key; HashFNV picks at random without one.
const (
	RoundRobin Policy = iota
	Random
	HashJava
	HashFNV
)

// Select implements Selector. RoundRobin needs a producer's counter, so it is random here.
func (p Policy) Select(m *Message, queues []Queue) int {
	n := len(queues)
	switch p {
	case HashJava:
		h := int64(protocol.JavaHash([]byte(m.OrderingKey))) % int64(n)
		return int(max(h, -h))
	case HashFNV:
		if m.OrderingKey == "" {
			return rand.IntN(n)
		}
		h := fnv.New32a()
		_, _ = h.Write([]byte(m.OrderingKey)) // never fails
		return int(h.Sum32() % uint32(n))
	default:
		return rand.IntN(n)
	}
}
