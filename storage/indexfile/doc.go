// SPDX-License-Identifier: Apache-2.0

// Package indexfile owns the index files, which find messages by key, unique id or tag and by time.
//
// The bytes are those of Apache RocketMQ (IndexFile, IndexHeader, IndexService), described in
// storage/docs/format/indexfile.md. Results are candidates: two keys with one hash are not told
// apart here. The index is a function of the log; what is doubtful after a crash is removed and the
// caller indexes the log again from the offset that Open returns.
//
// One goroutine writes (Put); Find and Last may be called from any goroutine. The newest
// file stays mapped, older ones are mapped while a query reads them. Files are sparse, so on a full
// disk a store to the mapping faults: the writer runs with debug.SetPanicOnFault.
//
//	index, resume, err := indexfile.Open(cfg, bounds)
//	err = index.Put(record, storeMS, at)
//	offsets, err := index.Find(indexfile.Query{Topic: "orders", Key: "id1", Max: 32, EndMS: now})
package indexfile
