// SPDX-License-Identifier: Apache-2.0

// Package consumequeue owns the ConsumeQueues: per topic and queue a list of 20-byte units, each of
// which says where in the CommitLog one message lies. Unit q of a queue belongs to the record whose
// QUEUEOFFSET is q, always: a unit is never written at another place.
//
// The bytes are those of Apache RocketMQ (ConsumeQueue, ConsumeQueueStore) and are described in
// storage/docs/format/consumequeue.md. Queues are functions of the log: whatever is wrong with them
// is cut off and dispatched again by the caller, see Set.Load and Queue.Put.
//
// Batch queues (RocketMQ BatchConsumeQueue) have a 46-byte unit for each record, which may hold several
// messages. What differs is in batch.go and batchunit.go: there a unit's position is no queue offset.
//
// A queue at rest costs one small struct: no goroutine, timer, descriptor or mapping. Files are
// mapped on demand, at most Config.MaxOpen at a time, and given back when nobody used them for a
// while (Set.CloseIdle).
//
// One goroutine at a time writes (the owner of the store's put lock, or recovery); any number read.
// Readers see units below End, which is stored after the bytes.
//
//	set, err := consumequeue.Open(cfg)
//	q, err := set.Create("orders", 0)
//	err = q.Prepare(1) // may do I/O; after it Append cannot fail
//	q.Append(q.Written(), consumequeue.Unit{At: at, Size: size, TagsCode: code})
//	q.Publish()
package consumequeue
