// SPDX-License-Identifier: Apache-2.0

package group

import (
	"hash/maphash"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

// Channel is one client connection. Two values are the same connection when they compare equal.
type Channel interface {
	RemoteAddr() string // "host:port"
	// Send queues a frame for the client. It never blocks and does nothing on a closed connection.
	Send(frame []byte)
}

// ClientInfo is what a client said about itself in its last heartbeat.
type ClientInfo struct {
	ID       string
	Language remoting.Language
	Version  int32
	LastMS   int64 // when the heartbeat came; set by Members
}

// Connection is a client and the connection it uses.
type Connection struct {
	Channel Channel
	ClientInfo
}

// Subscription is what a group reads of one topic. It is immutable.
type Subscription struct {
	Data  protocol.SubscriptionData
	Codes []int32 // hashes of the tags; nil: no tag filter, the group takes everything
}

// View is a consumer group at one moment. It is immutable.
type View struct {
	Type  protocol.ConsumeType
	Model protocol.MessageModel
	From  protocol.ConsumeFromWhere
	Subs  map[string]*Subscription // by topic
}

// State says what Subscription knows of a group besides the subscription.
type State struct {
	Online       bool // some consumer of the group is registered by a heartbeat
	Broadcasting bool
	Active       bool // the group pulls by itself (CONSUME_ACTIVELY) and is not pushed to
}

// HeartbeatResult is what a client learns from its heartbeat.
type HeartbeatResult struct {
	// SubChanged asks a client that sends short heartbeats for the full one (IS_SUB_CHANGE).
	SubChanged bool
	// Refused says which group did not take the client, and why (MembersConfig.RefuseDifferent).
	// The other groups of the heartbeat are registered all the same.
	Refused error
}

// MembersConfig connects Members to its surroundings. Durations of zero take RocketMQ's defaults.
type MembersConfig struct {
	ChannelTimeout      time.Duration // silence after which a client is gone, 120 s
	ScanPeriod          time.Duration // least time between two looks for silent clients, 10 s
	SubscriptionTimeout time.Duration // age of a subscription that came with a pull, 600 s
	RejectPull          bool          // rejectPullConsumerEnable
	ProducersOff        bool          // enableRegisterProducer=false

	// RefuseDifferent keeps a client out of a group one of whose members reads a topic with another
	// expression: it gets no queues then, where RocketMQ lets the later heartbeat win and both miss
	// messages. refuseDifferentSubscriptions, a key of ours.
	RefuseDifferent bool

	// Admit is asked before a consumer group is registered. It finds or creates the group's
	// configuration and its retry topic and tells whether members are notified of changes; not ok
	// skips the group. It may block; no lock is held. nil admits every group.
	Admit func(c *protocol.ConsumerData) (notify, ok bool)

	// NotifyChange is called when the members of a group must rebalance, before the call that
	// caused it returns and without a lock held. The slice is its own.
	NotifyChange func(group string, chs []Channel)

	// Registered gets the subscriptions of each full heartbeat after they are in force, and Left a
	// consumer group whose last member has gone. No lock is held; both may block. nil: nobody asks.
	Registered func(group string, subs []protocol.SubscriptionData)
	Left       func(group string)

	// Expired gets connections whose clients went silent, to be closed. Called on a timer.
	Expired func(chs []Channel)

	// ProducerJoined is called when a producer group has its first member, without a lock held.
	ProducerJoined func(group string)

	// Scanned is called on a timer while anybody is registered, after the look for silent clients.
	Scanned func(now time.Time)

	Now    func() time.Time            // nil: time.Now
	Notice func(msg string, kv ...any) // nil: silent
}

const (
	shardCount       = 64
	compensationsMax = 65536
	warningsMax      = 64 // different conflicts remembered for one group
)

// Members is who is connected. All methods may be called from any goroutine. A timer runs only
// while somebody is registered.
type Members struct {
	cfg       MembersConfig
	seed      maphash.Seed
	conflicts atomic.Int64
	twins     atomic.Int64
	blankMS   atomic.Int64 // when a heartbeat without a client id was last reported

	// Read by Subscription without a lock. Each map is immutable; mu guards its replacement.
	views [shardCount]atomic.Pointer[map[string]*View]

	// Guards what follows. Never held across a callback.
	mu        sync.Mutex
	consumers map[string]*consumerGroup
	producers map[string]*producerGroup
	byClient  map[string]Channel // producers' client ids
	channels  map[Channel]*memberships
	extra     map[subKey]*Subscription // subscriptions that came with pulls
	timer     *time.Timer
	armed     bool
	closed    bool
}

type subKey struct{ group, topic string }

// memberships lists the groups one connection is in, and what it is there, so that neither its
// heartbeats nor its end cost a search among all members of a group.
type memberships struct {
	consumers map[string]*member
	producers map[string]*producer
}

// consumerGroup is the changeable side of a View.
type consumerGroup struct {
	name        string
	view        *View
	members     []*member // in order of joining
	fingerprint int32     // of the last heartbeat
	beaten      bool      // fingerprint is set
	warned      map[string]bool
}

type member struct {
	Connection
	joinedMS int64
	subs     map[string]*Subscription // its own wish; nil until a full heartbeat
	digest   uint64                   // of subs; equal digests mean equal wishes
}

type producerGroup struct {
	members []*producer    // in order of joining
	ids     map[string]int // how many members have a client id
	next    int            // where Pick goes on
	warned  map[string]bool
}

type producer struct {
	Connection
	joinedMS int64
}

// NewMembers makes an empty table.
func NewMembers(cfg MembersConfig) *Members {
	if cfg.ChannelTimeout <= 0 {
		cfg.ChannelTimeout = 120 * time.Second
	}
	if cfg.ScanPeriod <= 0 {
		cfg.ScanPeriod = 10 * time.Second
	}
	if cfg.SubscriptionTimeout <= 0 {
		cfg.SubscriptionTimeout = 600 * time.Second
	}
	if cfg.Admit == nil {
		cfg.Admit = func(*protocol.ConsumerData) (bool, bool) { return true, true }
	}
	if cfg.NotifyChange == nil {
		cfg.NotifyChange = func(string, []Channel) {}
	}
	if cfg.Registered == nil {
		cfg.Registered = func(string, []protocol.SubscriptionData) {}
	}
	if cfg.Left == nil {
		cfg.Left = func(string) {}
	}
	if cfg.ProducerJoined == nil {
		cfg.ProducerJoined = func(string) {}
	}
	if cfg.Scanned == nil {
		cfg.Scanned = func(time.Time) {}
	}
	if cfg.Expired == nil {
		cfg.Expired = func([]Channel) {}
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Notice == nil {
		cfg.Notice = func(string, ...any) {}
	}
	m := &Members{
		cfg:       cfg,
		seed:      maphash.MakeSeed(),
		consumers: map[string]*consumerGroup{},
		producers: map[string]*producerGroup{},
		byClient:  map[string]Channel{},
		channels:  map[Channel]*memberships{},
		extra:     map[subKey]*Subscription{},
	}
	empty := map[string]*View{}
	for i := range m.views {
		m.views[i].Store(&empty)
	}
	return m
}

// Close stops the timer. The table stays readable.
func (m *Members) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	if m.timer != nil {
		m.timer.Stop()
	}
}

// View returns a group as it is now; ok is false when no consumer of it is registered. It takes no
// lock and allocates nothing.
func (m *Members) View(group []byte) (v *View, ok bool) {
	views := m.views[maphash.Bytes(m.seed, group)%shardCount].Load()
	v, ok = (*views)[string(group)]
	return v, ok
}

// EachView calls do with each consumer group that is online, as it is now.
func (m *Members) EachView(do func(group string, v *View)) {
	for i := range m.views {
		for name, v := range *m.views[i].Load() {
			do(name, v)
		}
	}
}

// Subscription returns what a group reads of a topic by its heartbeats, nil when it does not, and
// what is known of the group. It takes no lock and allocates nothing.
func (m *Members) Subscription(group, topic []byte) (*Subscription, State) {
	v, ok := m.View(group)
	if !ok {
		return nil, State{}
	}
	return v.Subs[string(topic)], State{
		Online:       true,
		Broadcasting: v.Model == protocol.Broadcasting,
		Active:       v.Type == protocol.ConsumeActively,
	}
}

// Own returns what the client behind ch itself asked for. It differs from Subscription when members
// of a group subscribe differently.
func (m *Members) Own(ch Channel, group, topic string) (*Subscription, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	g := m.consumers[group]
	if g == nil {
		return nil, false
	}
	p := m.memberLocked(ch, group)
	if p == nil {
		return nil, false
	}
	s, ok := p.subs[topic]
	return s, ok
}

// Conflicts counts the times that two members of a group were found to subscribe differently.
func (m *Members) Conflicts() int64 { return m.conflicts.Load() }

// Mixed lists the groups whose members subscribe differently now, sorted.
func (m *Members) Mixed() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var names []string
	for name, g := range m.consumers {
		var first *member
		for _, p := range g.members {
			switch {
			case p.subs == nil:
			case first == nil:
				first = p
			case p.digest != first.digest:
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Twins counts the client ids that were found in use by two clients at once.
func (m *Members) Twins() int64 { return m.twins.Load() }

// Compensate remembers a subscription that came with a pull of a group that need not send
// heartbeats (RocketMQ ConsumerManager.compensateSubscribeData). Only Find looks at it.
func (m *Members) Compensate(group, topic string, data protocol.SubscriptionData) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := subKey{group, topic}
	if len(m.extra) >= compensationsMax && m.extra[key] == nil {
		return
	}
	m.extra[key] = newSubscription(data)
	m.armLocked()
}

// Find returns a group's subscription to a topic, from heartbeats or else from pulls.
func (m *Members) Find(group, topic string) (*Subscription, bool) {
	if v, ok := m.View([]byte(group)); ok {
		if s := v.Subs[topic]; s != nil {
			return s, true
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s, ok := m.extra[subKey{group, topic}]
	return s, ok
}

// GroupsOf lists the groups whose consumers subscribe a topic now, in no order.
func (m *Members) GroupsOf(topic string) []string {
	var names []string
	for i := range m.views {
		for name, v := range *m.views[i].Load() {
			if v.Subs[topic] != nil {
				names = append(names, name)
			}
		}
	}
	return names
}

// ConsumerIDs lists the client ids of a group in the order they joined; an id that two connections
// use is there twice, as in RocketMQ. Empty: the group is not online.
func (m *Members) ConsumerIDs(group string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.consumerIDsLocked(group)
}

func (m *Members) consumerIDsLocked(group string) []string {
	g := m.consumers[group]
	if g == nil {
		return nil
	}
	ids := make([]string, len(g.members))
	for i, p := range g.members {
		ids[i] = p.ID
	}
	return ids
}

// TryConsumerIDs is ConsumerIDs for those that must not wait; ok is false while the table is busy.
func (m *Members) TryConsumerIDs(group string) (ids []string, ok bool) {
	if !m.mu.TryLock() {
		return nil, false
	}
	defer m.mu.Unlock()
	return m.consumerIDsLocked(group), true
}

// Consumers lists the connections of a consumer group in the order they joined.
func (m *Members) Consumers(group string) []Connection {
	m.mu.Lock()
	defer m.mu.Unlock()
	g := m.consumers[group]
	if g == nil {
		return nil
	}
	list := make([]Connection, len(g.members))
	for i, p := range g.members {
		list[i] = p.Connection
	}
	return list
}

// Consumer finds the connection of one client of a group; of two with the id, that of the latest
// heartbeat, since the other may be what is left of a broken connection.
func (m *Members) Consumer(group, clientID string) (found Connection, ok bool) {
	for _, c := range m.Consumers(group) {
		if c.ID == clientID && (!ok || c.LastMS >= found.LastMS) {
			found, ok = c, true
		}
	}
	return found, ok
}

// Producers lists the connections of a producer group; ok is false when there are none.
func (m *Members) Producers(group string) (list []Connection, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	g := m.producers[group]
	if g == nil {
		return nil, false
	}
	for _, c := range g.members {
		list = append(list, c.Connection)
	}
	return list, true
}

// AllProducers lists the connections of every producer group.
func (m *Members) AllProducers() map[string][]Connection {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make(map[string][]Connection, len(m.producers))
	for name, g := range m.producers {
		for _, c := range g.members {
			all[name] = append(all[name], c.Connection)
		}
	}
	return all
}

// ProducerByID finds the connection of a producer by its client id, to push it a reply.
func (m *Members) ProducerByID(clientID string) (Channel, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ch, ok := m.byClient[clientID]
	return ch, ok
}

// PickProducer chooses a member of a producer group, each in turn, to ask it about a transaction.
func (m *Members) PickProducer(group string) (Channel, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	g := m.producers[group]
	if g == nil {
		return nil, false
	}
	g.next = (g.next + 1) % len(g.members)
	return g.members[g.next].Channel, true
}

// publishLocked makes a group's view what readers see; a nil view takes the group away.
func (m *Members) publishLocked(group string, v *View) {
	at := &m.views[maphash.String(m.seed, group)%shardCount]
	next := maps.Clone(*at.Load())
	if v == nil {
		delete(next, group)
	} else {
		next[group] = v
	}
	at.Store(&next)
}
