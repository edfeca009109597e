// SPDX-License-Identifier: Apache-2.0

package pop

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/storage/vfs"
)

// OrdersFileName is the name of the file of Orders in the configuration folder.
const OrdersFileName = "consumerOrderInfo.json"

// order is what an ordered group has out of one queue (RocketMQ OrderInfo).
type order struct {
	AttemptID   string          `json:"a,omitempty"`
	Acked       int64           `json:"cm"`
	InvisibleMS int64           `json:"i"`
	LastMS      int64           `json:"l"`
	Offsets     []int64         `json:"o"` // the first is absolute, the others count from it
	Counts      map[int64]int32 `json:"oc,omitempty"`
	VisibleMS   map[int64]int64 `json:"ot,omitempty"`
	PopMS       int64           `json:"popTime"`
}

// ordersFile is consumerOrderInfo.json.
type ordersFile struct {
	Count int32                       `json:"orderInfoCount"`
	Level string                      `json:"orderedConsumptionLevel"`
	Table map[string]map[int32]*order `json:"table"`
}

// orderKeepMS is how long after its last use an order is kept.
const orderKeepMS = 24 * 3600 * 1000

// ordersInterval is the time from a change to its writing.
const ordersInterval = 10 * time.Second

// Orders keeps what ordered groups have out (RocketMQ ConsumerOrderInfoManager). A queue is blocked
// while a message of it is out and not acknowledged. All methods may be called from any goroutine.
type Orders struct {
	path   string
	notice func(msg string, kv ...any)

	mu      sync.Mutex // held across the write of the file
	table   map[string]map[int32]*order
	blocked map[queueKey]int64 // queues that become free by themselves, and when
	dirty   bool
	timer   *time.Timer
	closed  bool
	poke    func()
}

// OpenOrders loads the orders from dir. A missing file is none. Where every copy is damaged it fails and
// names them; with allowEmpty it goes on without, and messages that are out come again at once, in order.
func OpenOrders(
	dir string, allowEmpty bool, notice func(msg string, kv ...any),
) (*Orders, error) {
	o := &Orders{
		path: filepath.Join(dir, OrdersFileName), notice: notice,
		table: map[string]map[int32]*order{}, blocked: map[queueKey]int64{}, poke: func() {},
	}
	var f ordersFile
	loaded, err := vfs.LoadTable(vfs.Table{
		Path: o.path, What: "order of pop consumers", AllowEmpty: allowEmpty, Notice: notice,
	}, func(data []byte) error {
		f = ordersFile{}
		return protocol.Unmarshal(data, &f)
	})
	if err != nil {
		return nil, fmt.Errorf("pop: load %s: %w", o.path, err)
	}
	if !loaded {
		return o, nil
	}
	for name, queues := range f.Table {
		topic, group, ok := strings.Cut(name, "@")
		if !ok {
			continue
		}
		for id, info := range queues {
			if info != nil && len(info.Offsets) > 0 && len(info.Offsets) <= 64 {
				o.put(queueKey{topic, group, id}, info)
			}
		}
	}
	return o, nil
}

// setPoke says whom to tell that a queue becomes free at a new time.
func (o *Orders) setPoke(poke func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.poke = poke
}

func (o *Orders) put(key queueKey, info *order) {
	name := key.topic + "@" + key.group
	if o.table[name] == nil {
		o.table[name] = map[int32]*order{}
	}
	o.table[name][key.queue] = info
	o.watch(key, info)
}

func (o *Orders) find(topic, group string, queue int32) *order {
	return o.table[topic+"@"+group][queue]
}

// offset is the queue offset of message i.
func (i *order) offset(n int) int64 {
	if n == 0 {
		return i.Offsets[0]
	}
	return i.Offsets[0] + i.Offsets[n]
}

func (i *order) acked(n int) bool { return i.Acked>>uint(n)&1 != 0 }

// visibleMS is when message n may come again.
func (i *order) visibleMS(n int) int64 {
	if at, ok := i.VisibleMS[i.offset(n)]; ok {
		return at
	}
	return i.PopMS + i.InvisibleMS
}

// blockedUntil is when the last message that is out may come again; 0: nothing is out.
func (i *order) blockedUntil(nowMS int64) int64 {
	for n := range i.Offsets {
		if !i.acked(n) && nowMS < i.visibleMS(n) {
			return i.visibleMS(n)
		}
	}
	return 0
}

// watch notes when a queue becomes free by itself, so that who waits for it is woken.
func (o *Orders) watch(key queueKey, info *order) {
	until := int64(0)
	for n := range info.Offsets {
		if !info.acked(n) {
			until = max(until, info.visibleMS(n))
		}
	}
	if until == 0 {
		delete(o.blocked, key)
		return
	}
	o.blocked[key] = until
	o.poke()
}

// Blocked reports whether a queue gives nothing, since messages of it are out. The request that
// popped them may have them again: it says who it is by its attempt id.
func (o *Orders) Blocked(
	topic, group string, queue int32, attempt string, invisibleMS, nowMS int64,
) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	info := o.find(topic, group, queue)
	if info == nil || attempt != "" && attempt == info.AttemptID {
		return false
	}
	if info.InvisibleMS <= 0 {
		info.InvisibleMS = invisibleMS
	}
	return info.blockedUntil(nowMS) > 0
}

// Update notes what an ordered pop gave out, and returns how often each was popped before.
func (o *Orders) Update(w *Wish, offsets []int64, nowMS int64) map[int64]int32 {
	o.mu.Lock()
	defer o.mu.Unlock()
	info := &order{
		AttemptID: w.AttemptID, InvisibleMS: w.InvisibleMS, LastMS: nowMS, PopMS: w.PopMS,
		Offsets: make([]int64, len(offsets)),
	}
	for i, off := range offsets {
		if info.Offsets[i] = off; i > 0 {
			info.Offsets[i] = off - offsets[0]
		}
	}
	if old := o.find(w.Topic, w.Group, w.Queue); old != nil {
		info.Counts = countAgain(old, info)
	}
	o.put(queueKey{w.Topic, w.Group, w.Queue}, info)
	o.touch()
	return info.Counts
}

// countAgain counts the messages that were out before once more, unless the same request asks again.
func countAgain(old, info *order) map[int64]int32 {
	if old.AttemptID != "" && old.AttemptID == info.AttemptID {
		return old.Counts
	}
	before := map[int64]bool{}
	for n := range old.Offsets {
		before[old.offset(n)] = true
	}
	counts := map[int64]int32{}
	for n := range info.Offsets {
		if off := info.offset(n); before[off] {
			counts[off] = old.Counts[off] + 1
		}
	}
	return counts
}

// What Commit returns when there is no offset to commit.
const (
	OrderNotOut = -1 // the message is not out: an error of the client
	OrderOld    = -2 // the message came again since: nothing to do
)

// Commit notes an acknowledgement and returns the offset to commit.
func (o *Orders) Commit(topic, group string, queue int32, offset, popMS, nowMS int64) int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	info := o.find(topic, group, queue)
	if info == nil {
		return offset + 1
	}
	if info.PopMS != popMS {
		return OrderOld
	}
	at := -1
	for n := range info.Offsets {
		if info.offset(n) == offset {
			at = n
		}
	}
	if at < 0 {
		return OrderNotOut
	}
	info.Acked |= 1 << uint(at)
	info.LastMS = nowMS
	o.watch(queueKey{topic, group, queue}, info)
	o.touch()
	for n := range info.Offsets {
		if !info.acked(n) {
			return info.offset(n)
		}
	}
	return info.offset(len(info.Offsets)-1) + 1
}

// SetVisible says when one message that is out may come again.
func (o *Orders) SetVisible(topic, group string, queue int32, offset, popMS, visibleMS int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	info := o.find(topic, group, queue)
	if info == nil || info.PopMS != popMS {
		return
	}
	if info.VisibleMS == nil {
		info.VisibleMS = map[int64]int64{}
	}
	if len(info.VisibleMS) < 64 {
		info.VisibleMS[offset] = visibleMS
	}
	o.watch(queueKey{topic, group, queue}, info)
	o.touch()
}

// Clear forgets what is out of a queue.
func (o *Orders) Clear(topic, group string, queue int32) {
	o.mu.Lock()
	defer o.mu.Unlock()
	name := topic + "@" + group
	if o.table[name][queue] == nil {
		return
	}
	delete(o.table[name], queue)
	delete(o.blocked, queueKey{topic, group, queue})
	o.touch()
}

// RemoveTopic forgets what is out of a topic, which was deleted.
func (o *Orders) RemoveTopic(topic string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for name := range o.table {
		if of, _, _ := strings.Cut(name, "@"); of == topic {
			delete(o.table, name)
			o.touch()
		}
	}
	for key := range o.blocked {
		if key.topic == topic {
			delete(o.blocked, key)
		}
	}
}

// nextMS is when the next queue becomes free by itself; 0: none does.
func (o *Orders) nextMS() (next int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, at := range o.blocked {
		if next == 0 || at < next {
			next = at
		}
	}
	return next
}

// step tells of the queues that have become free by themselves.
func (o *Orders) step(nowMS int64, free func(topic, group string, queue int32)) {
	o.mu.Lock()
	var list []queueKey
	for key, at := range o.blocked {
		if at <= nowMS {
			list = append(list, key)
			delete(o.blocked, key)
		}
	}
	o.mu.Unlock()
	for _, key := range list {
		free(key.topic, key.group, key.queue)
	}
}

// touch has the file written soon. mu is held.
func (o *Orders) touch() {
	if o.dirty || o.closed {
		return
	}
	o.dirty = true
	o.timer = time.AfterFunc(ordersInterval, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.closed {
			return
		}
		if err := o.persist(); err != nil {
			o.notice("the order of pop consumers could not be written", "path", o.path, "err", err)
			o.touch()
		}
	})
}

// persist writes the file if something changed. mu is held.
func (o *Orders) persist() error {
	if !o.dirty {
		return nil
	}
	o.dirty = false
	f := ordersFile{Level: "QUEUE", Table: map[string]map[int32]*order{}}
	limit := time.Now().UnixMilli() - orderKeepMS
	for name, queues := range o.table {
		kept := map[int32]*order{}
		for id, info := range queues {
			if info.LastMS < limit {
				delete(queues, id)
				continue
			}
			kept[id] = info
			f.Count++
		}
		if len(kept) == 0 {
			delete(o.table, name)
			continue
		}
		f.Table[name] = kept
	}
	if err := vfs.WriteFileAtomic(o.path, protocol.MarshalFastJSON(f)); err != nil {
		return fmt.Errorf("pop: write %s: %w", o.path, err)
	}
	return nil
}

// Close writes what is not in the file yet. Idempotent.
func (o *Orders) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return nil
	}
	err := o.persist()
	o.closed = true
	if o.timer != nil {
		o.timer.Stop()
	}
	return err
}
