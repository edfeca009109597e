// SPDX-License-Identifier: Apache-2.0

package client

import (
	"cmp"
	"crypto/md5" // the consistent hash of RocketMQ's Java client is made of it
	"encoding/binary"
	"slices"
	"strconv"
	"strings"
)

// Assignor says which queues of a topic a member of a group consumes. Every member works that out
// for itself, so all members of a group, Java ones included, must have the same assignor. members
// are the client ids of the group and queues the queues of one topic; both are sorted. Assign must
// keep neither, and must not depend on anything that other members do not see. Name goes to brokers
// and is RocketMQ's for the ones of this package.
type Assignor interface {
	Name() string
	Assign(self string, members []string, queues []Queue) []Queue
}

// place returns where self stands among the members; ok is false when nothing can be assigned.
func place(self string, members []string, queues []Queue) (i int, ok bool) {
	i = slices.Index(members, self)
	return i, i >= 0 && len(queues) > 0
}

type averagely struct{}

// Averagely gives each member a contiguous block of queues, the first members one more where they
// do not divide evenly (RocketMQ's AllocateMessageQueueAveragely). It is the default.
func Averagely() Assignor { return averagely{} }

func (averagely) Name() string { return "AVG" }

func (averagely) Assign(self string, members []string, queues []Queue) []Queue {
	i, ok := place(self, members, queues)
	if !ok {
		return nil
	}
	return slices.Clone(block(queues, i, len(members)))
}

// block is member i's share of n.
func block(queues []Queue, i, n int) []Queue {
	size, rest := len(queues)/n, len(queues)%n
	from := i*size + min(i, rest)
	if i < rest {
		size++
	}
	return queues[from : from+size]
}

type byCircle struct{}

// AveragelyByCircle deals the queues out one by one (RocketMQ's
// AllocateMessageQueueAveragelyByCircle).
func AveragelyByCircle() Assignor { return byCircle{} }

func (byCircle) Name() string { return "AVG_BY_CIRCLE" }

func (byCircle) Assign(self string, members []string, queues []Queue) []Queue {
	i, ok := place(self, members, queues)
	if !ok {
		return nil
	}
	var mine []Queue
	for ; i < len(queues); i += len(members) {
		mine = append(mine, queues[i])
	}
	return mine
}

type byConfig struct{ queues []Queue }

// ByConfig assigns exactly these queues, whoever else is in the group (RocketMQ's
// AllocateMessageQueueByConfig).
func ByConfig(queues ...Queue) Assignor { return byConfig{slices.Clone(queues)} }

func (byConfig) Name() string { return "CONFIG" }

func (a byConfig) Assign(_ string, _ []string, queues []Queue) []Queue {
	var mine []Queue
	for _, q := range a.queues {
		if slices.Contains(queues, q) {
			mine = append(mine, q)
		}
	}
	return mine
}

type byRoom struct{ rooms []string }

// ByMachineRoom divides, as Averagely does, the queues of brokers whose name is room@name with one
// of the rooms; other queues are nobody's (RocketMQ's AllocateMessageQueueByMachineRoom). With
// remainders it differs from Averagely: every member gets the even share, and the first ones one
// more each from the end.
func ByMachineRoom(rooms ...string) Assignor { return byRoom{slices.Clone(rooms)} }

func (byRoom) Name() string { return "MACHINE_ROOM" }

func (a byRoom) Assign(self string, members []string, queues []Queue) []Queue {
	i, ok := place(self, members, queues)
	if !ok {
		return nil
	}
	var in []Queue
	for _, q := range queues {
		if room, name, found := strings.Cut(q.Broker, "@"); found && name != "" &&
			!strings.Contains(name, "@") && slices.Contains(a.rooms, room) {
			in = append(in, q)
		}
	}
	size := len(in) / len(members)
	mine := slices.Clone(in[i*size : (i+1)*size])
	if rest := len(in) % len(members); i < rest {
		mine = append(mine, in[size*len(members)+i])
	}
	return mine
}

// Rooms tells where brokers and clients stand. Empty means unknown, which NearbyRoom does not
// assign.
type Rooms interface {
	BrokerRoom(q Queue) string
	ClientRoom(clientID string) string
}

type nearby struct {
	inner Assignor
	rooms Rooms
}

// NearbyRoom divides the queues of each room among the members there, with inner; queues of rooms
// without a member are divided among all (RocketMQ's AllocateMachineRoomNearby). rooms must give
// the same answers to every member.
func NearbyRoom(inner Assignor, rooms Rooms) Assignor { return nearby{inner, rooms} }

func (a nearby) Name() string { return "MACHINE_ROOM_NEARBY-" + a.inner.Name() }

func (a nearby) Assign(self string, members []string, queues []Queue) []Queue {
	if _, ok := place(self, members, queues); !ok {
		return nil
	}
	inRoom := map[string][]Queue{}
	var order []string
	for _, q := range queues {
		room := a.rooms.BrokerRoom(q)
		if room == "" {
			return nil // RocketMQ refuses to go on
		}
		if inRoom[room] == nil {
			order = append(order, room)
		}
		inRoom[room] = append(inRoom[room], q)
	}
	who := map[string][]string{}
	for _, m := range members {
		room := a.rooms.ClientRoom(m)
		if room == "" {
			return nil
		}
		who[room] = append(who[room], m)
	}
	own := a.rooms.ClientRoom(self)
	mine := a.inner.Assign(self, who[own], inRoom[own])
	slices.Sort(order)
	for _, room := range order {
		if len(who[room]) == 0 {
			mine = append(mine, a.inner.Assign(self, members, inRoom[room])...)
		}
	}
	return mine
}

// virtualNodes is how many points of the ring each member has.
const virtualNodes = 10

type consistentHash struct{}

// ConsistentHash moves few queues when members come and go (RocketMQ's
// AllocateMessageQueueConsistentHash with its ten virtual nodes and MD5).
func ConsistentHash() Assignor { return consistentHash{} }

func (consistentHash) Name() string { return "CONSISTENT_HASH" }

type ringPoint struct {
	hash   uint32
	member string
}

func (consistentHash) Assign(self string, members []string, queues []Queue) []Queue {
	if _, ok := place(self, members, queues); !ok {
		return nil
	}
	ring := make([]ringPoint, 0, len(members)*virtualNodes)
	for _, m := range members {
		for k := range virtualNodes {
			ring = append(ring, ringPoint{hashOf(m + "-" + strconv.Itoa(k)), m})
		}
	}
	// Of two points with one hash the later replaces the earlier, as in a sorted map.
	slices.SortStableFunc(ring, func(a, b ringPoint) int { return cmp.Compare(a.hash, b.hash) })
	unique := ring[:0]
	for _, p := range ring {
		if n := len(unique); n > 0 && unique[n-1].hash == p.hash {
			unique[n-1] = p
			continue
		}
		unique = append(unique, p)
	}
	var mine []Queue
	for _, q := range queues {
		h := hashOf("MessageQueue [topic=" + q.Topic + ", brokerName=" + q.Broker +
			", queueId=" + strconv.Itoa(q.ID) + "]")
		at, _ := slices.BinarySearchFunc(unique, h, func(p ringPoint, h uint32) int {
			return cmp.Compare(p.hash, h)
		})
		if unique[at%len(unique)].member == self {
			mine = append(mine, q)
		}
	}
	return mine
}

func hashOf(text string) uint32 {
	sum := md5.Sum([]byte(text))
	return binary.BigEndian.Uint32(sum[:])
}

// sortQueues puts queues into the order that assignors expect: topic, broker, id.
func sortQueues(queues []Queue) {
	slices.SortFunc(queues, func(a, b Queue) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Broker, b.Broker),
			cmp.Compare(a.ID, b.ID))
	})
}
