// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/skylarkmq/skylark/net/invoke"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

// askTries and askPause say how often a call is made whose connection breaks, and how long it waits
// before the second time.
const (
	askTries = 4
	askPause = 10 * time.Millisecond
)

// callsAtOnce bounds how many calls for the queues of one consumer or reader are under way.
const callsAtOnce = 16

// desk asks brokers what concerns one group: positions, bounds, members. It holds no state.
type desk struct {
	client *Client
	group  string // empty: none
}

// ask calls the master of a queue's broker; decode may be nil.
func (d desk) ask(
	ctx context.Context, op string, q Queue, req *invoke.Request,
	decode func(*remoting.Command) error,
) error {
	ctx, cancel := d.client.bounded(ctx)
	defer cancel()
	addr, err := d.address(ctx, q, 0)
	if err != nil {
		return fmt.Errorf("client: %s of queue %s: %w", op, q, err)
	}
	var res *invoke.Response
	for try := range askTries {
		res, err = d.client.call(ctx, op, q.Broker, addr, req)
		var lost *invoke.Error
		if !errors.As(err, &lost) || ctx.Err() != nil {
			break
		}
		// The connection broke. What is asked here may be asked twice.
		t := time.NewTimer(askPause << try)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
		}
	}
	if err == nil && decode != nil {
		err = decode(res.Command)
	}
	if err != nil {
		return fmt.Errorf("client: %s of queue %s: %w", op, q, err)
	}
	return nil
}

// address returns where a queue is read: at the broker with that id, else another of its name.
func (d desk) address(ctx context.Context, q Queue, id int64) (string, error) {
	rt := d.client.routes.cached(q.Topic)
	if rt == nil || rt.template || rt.reader(q.Broker, id) == "" {
		var err error
		if rt, err = d.client.routes.fetch(ctx, q.Topic); err != nil {
			return "", err
		}
	}
	addr := rt.reader(q.Broker, id)
	if addr == "" {
		return "", fmt.Errorf("broker %s serves topic %s no more: %w", q.Broker, q.Topic, ErrNoRoute)
	}
	return addr, nil
}

func (d desk) askOffset(
	ctx context.Context, op string, q Queue, req *invoke.Request,
) (offset int64, err error) {
	var o protocol.OffsetResponse
	err = d.ask(ctx, op, q, req, o.Decode)
	return o.Offset, err
}

// bound asks for the first offset of a queue, or for its end.
func (d desk) bound(ctx context.Context, q Queue, end bool) (offset int64, err error) {
	topic := d.client.onWire(q.Topic)
	req := &invoke.Request{
		Code:   remoting.GetMinOffset,
		Header: &protocol.MinOffsetRequest{Topic: topic, QueueID: int32(q.ID)},
	}
	if end {
		req = &invoke.Request{
			Code:   remoting.GetMaxOffset,
			Header: &protocol.MaxOffsetRequest{Topic: topic, QueueID: int32(q.ID)},
		}
	}
	return d.askOffset(ctx, "asking for a bound", q, req)
}

func (d desk) offsetAt(ctx context.Context, q Queue, ms int64) (int64, error) {
	return d.askOffset(ctx, "asking for the offset of a time", q, &invoke.Request{
		Code: remoting.SearchOffsetByTimestamp,
		Header: &protocol.SearchOffsetRequest{
			Topic: d.client.onWire(q.Topic), QueueID: int32(q.ID), Timestamp: ms,
		},
	})
}

// stored asks for the position of the group; ok is false when there is none. young: the broker may
// answer 0 for a group that is new to a queue whose first message is still in its memory, as it
// does for RocketMQ's push consumers.
func (d desk) stored(ctx context.Context, q Queue, young bool) (offset int64, ok bool, err error) {
	h := &protocol.QueryConsumerOffsetRequest{
		Group: d.client.onWire(d.group), Topic: d.client.onWire(q.Topic), QueueID: int32(q.ID),
	}
	if !young {
		h.SetZeroIfNotFound = new(bool)
	}
	offset, err = d.askOffset(ctx, "asking for the stored position", q,
		&invoke.Request{Code: remoting.QueryConsumerOffset, Header: h})
	var be *BrokerError
	if errors.As(err, &be) && remoting.ResponseCode(be.Code) == remoting.QueryNotFound {
		return 0, false, nil
	}
	return offset, err == nil, err
}

// start is where a queue begins without a stored position (RocketMQ's computePullFromWhere).
func (d desk) start(ctx context.Context, q Queue, s Start) (int64, error) {
	if protocol.IsRetryTopic(q.Topic) {
		// A group's failed messages are all its own, however old.
		if s >= 0 {
			return d.bound(ctx, q, true)
		}
		s = Earliest
	}
	switch s {
	case Latest:
		return d.bound(ctx, q, true)
	case Earliest:
		return d.bound(ctx, q, false)
	default:
		return d.offsetAt(ctx, q, int64(s))
	}
}

// store stores a position of the group.
func (d desk) store(ctx context.Context, q Queue, offset int64) error {
	return d.ask(ctx, "commit", q, &invoke.Request{
		Code: remoting.UpdateConsumerOffset, Header: &protocol.UpdateConsumerOffsetRequest{
			Group: d.client.onWire(d.group), Topic: d.client.onWire(q.Topic),
			QueueID: int32(q.ID), HasQueueID: true, CommitOffset: offset, HasOffset: true,
		},
	}, nil)
}

// callBack calls one of the user's rebalance functions, without a lock.
func (d desk) callBack(
	ctx context.Context, f func(ctx context.Context, queues []Queue), queues []Queue,
) {
	if f == nil || len(queues) == 0 {
		return
	}
	defer func() {
		if v := recover(); v != nil {
			d.client.cfg.logger.Error("panic in a rebalance function", "group", d.group, "err", v,
				"stack", string(debug.Stack()))
		}
	}()
	f(ctx, slices.Clone(queues))
}

// members asks one of a topic's brokers for the client ids of the group; another one when it does
// not answer. known keeps the answers of one round by address.
func (d desk) members(
	ctx context.Context, rt *topicRoute, known *memberLists,
) ([]string, error) {
	var addrs []string
	for _, ids := range rt.brokers {
		if addr := ids[0]; addr != "" {
			addrs = append(addrs, addr)
		} else if left := sortedIDs(ids); len(left) > 0 {
			addrs = append(addrs, ids[left[0]])
		}
	}
	rand.Shuffle(len(addrs), func(i, j int) { addrs[i], addrs[j] = addrs[j], addrs[i] })
	err := fmt.Errorf("client: members of group %s: %w", d.group, ErrNoRoute)
	for _, addr := range addrs {
		list, ok := known.get(addr)
		if ok {
			return list, nil
		}
		var res *invoke.Response
		res, err = d.client.call(ctx, "members", addr, addr, &invoke.Request{
			Code:   remoting.GetConsumerListByGroup,
			Header: &protocol.ConsumerListRequest{Group: d.client.onWire(d.group)},
		})
		if err != nil {
			continue
		}
		var body protocol.ConsumerList
		if err = protocol.Unmarshal(res.Body, &body); err != nil {
			err = fmt.Errorf("client: members of group %s: %w", d.group, err)
			continue
		}
		known.put(addr, body.ConsumerIDList)
		return body.ConsumerIDList, nil
	}
	return nil, err
}

// memberLists are the answers of one rebalance round.
type memberLists struct {
	mu   sync.Mutex
	list map[string][]string
}

func (m *memberLists) get(addr string) ([]string, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l, ok := m.list[addr]
	return l, ok
}

func (m *memberLists) put(addr string, ids []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.list[addr] = ids
}

// atOnce calls do for each item, a bounded number of them at the same time, and waits for all.
func atOnce[T any](items []T, do func(T)) {
	if len(items) == 1 {
		do(items[0])
		return
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, callsAtOnce)
	for _, item := range items {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			do(item)
		})
	}
	wg.Wait()
}

// brokerTopic is a topic at one broker.
type brokerTopic struct{ broker, topic string }

// oneFirst is atOnce with one item of each topic and broker before the others. RocketMQ's brokers
// (4.9.4 at least) may drop one of the first two offsets of a group in a topic that come at once, each
// making the table that holds them.
func oneFirst[T any](items []T, of func(T) brokerTopic, do func(T)) {
	seen := map[brokerTopic]bool{}
	var first, rest []T
	for _, item := range items {
		if key := of(item); seen[key] {
			rest = append(rest, item)
		} else {
			seen[key] = true
			first = append(first, item)
		}
	}
	atOnce(first, do)
	atOnce(rest, do)
}
