// SPDX-License-Identifier: Apache-2.0

// Package storage owns a message store: the directory, the order in which it is opened, recovered
// and closed, and the one path by which messages get in and out. The parts lie below it: commitlog
// (the records, which are the truth), consumequeue and indexfile (functions of the log).
//
// The files are those of Apache RocketMQ 5.5 with storeType=default and are described in
// storage/docs/format. A store can change hands between the two programs at any time, also after a
// crash.
//
// What topics exist, who may read, what a request is: that is engine's business. Nothing here logs;
// Config.Notice is told what an operator should know.
//
//	store, err := storage.Open(storage.DefaultConfig("skylark-data"))
//	entries := []storage.Entry{{Draft: draft}}
//	store.Append(entries) // one critical section for all messages of one socket read
//	store.Read(&storage.ReadRequest{Topic: topic, From: 0, MaxMessages: 32}, &result)
//	err = store.Close()
//
// Goroutines: those of the log (in commitlog); the indexer, which follows the log; the maintainer,
// which flushes queues, writes the checkpoint and looks at the disk; the cleaner, which deletes old
// files. Each sleeps without a timer while nothing was written; the cleaner looks every 10 s once the
// log has more than one file. Locks, in order: Store.mu (held by Append), Store.parkedMu, Queue.mu of
// one queue, the locks of consumequeue.Set.
package storage
