// SPDX-License-Identifier: Apache-2.0

// Package foreign finds in a store directory what only RocketMQ can read, before anything is written
// there.
//
// A store with some of its state in such places looks whole: the log opens, the tables load. Started
// on it, this broker would serve consumers without their positions, or topics without their older
// messages, and write over files that RocketMQ then no longer believes. So Check refuses the whole
// directory and says what to do. What is merely not served here and can wait untouched is not its
// concern: compaction and static topics (engine/topic), ConsumeQueueExt and light queues (storage).
//
//	if err := foreign.Check(root); err != nil {
//		return err // names the files; nothing was touched
//	}
package foreign

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Error is a store directory that Check refuses.
type Error struct {
	Path string // what gives it away
	What string // what is kept there
	Do   string // how the store becomes one that both can read
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s shows that %s, which is not supported: nothing was changed; %s",
		e.Path, e.What, e.Do)
}

// Check returns an *Error when part of the store in root is kept where only RocketMQ finds it. It
// reads names, and two small files; it writes nothing, and root need not exist. Any goroutine may
// call it.
func Check(root string) error {
	for _, look := range []func(string) error{
		rocksDB, lightPositions, tiered, raft,
	} {
		if err := look(root); err != nil {
			return err
		}
	}
	return nil
}

// rocksDB refuses state in RocksDB: queues (storeType=defaultRocksDB), tables (RocksDBConfigManager:
// topics, subscriptionGroups, consumerOffsets, or metadata for all three; ConfigStorage: rdb), pops
// (PopConsumerRocksdbStore: kvStore), timers and half messages (MessageRocksDBStorage: rocksdbstore).
// A database is told by the file CURRENT, which each has, and not by its name: options move them.
func rocksDB(root string) error {
	for _, parent := range []string{"", "config"} {
		entries, err := os.ReadDir(filepath.Join(root, parent))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, e := range entries {
			if !e.IsDir() {
				continue
			}
			if err := database(root, filepath.Join(parent, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// database refuses one folder if it is a RocksDB database that matters.
func database(root, name string) error {
	current := filepath.Join(root, name, "CURRENT")
	info, err := os.Stat(current)
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && info.IsDir(): // a topic may have that name
		return nil
	case err != nil:
		return err
	}
	e := &Error{
		Path: current, What: "this part of the store is kept in RocksDB",
		Do: "let RocketMQ convert it to files first (storeType=default, configManagerVersion=V1)",
	}
	switch name {
	case filepath.Join("config", "users"), filepath.Join("config", "acls"):
		return nil // LocalAuthenticationMetadataProvider: no messages and no positions
	case "rocksdbstore":
		e.What = "timers, half messages or the index are kept in RocksDB"
		e.Do = "let RocketMQ deliver what waits there, with timerRocksDBEnable, transRocksDBEnable and " +
			"indexRocksDBEnable off, and take the folder away"
	case "kvStore":
		e.What = "popped messages are kept in RocksDB"
		e.Do = "let RocketMQ bring back what is out, with popConsumerKVServiceEnable off, and take " +
			"the folder away"
	default:
		return e
	}
	// Every store of RocketMQ 5.5 has the first of these two, and mostly an empty one.
	empty, err := emptyDatabase(filepath.Join(root, name))
	if err != nil || empty {
		return err
	}
	return e
}

// emptyDatabase reports whether nothing was ever put into a database: it has no tables, and its
// write-ahead logs are empty.
func emptyDatabase(dir string) (bool, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		switch filepath.Ext(e.Name()) {
		case ".sst", ".ldb", ".blob":
			return false, nil
		case ".log":
			info, err := e.Info()
			if err != nil {
				return false, err
			}
			if info.Size() > 0 {
				return false, nil
			}
		}
	}
	return true, nil
}

// lightPositions refuses a store whose broker ran with enableLmq: its consumers' positions, also
// those of ordinary topics, are in another file (LmqConsumerOffsetManager).
func lightPositions(root string) error {
	// Every key of its two tables is topic@group.
	path, found, err := mentions(filepath.Join(root, "config", "lmqConsumerOffset.json"), "@")
	if err != nil || !found {
		return err
	}
	return &Error{
		Path: path, What: "positions of consumers are kept in a file of their own (enableLmq)",
		Do: "light queues cannot be taken over; without them, put its offsetTable into " +
			"consumerOffset.json and take the file away",
	}
}

// tiered refuses a store whose older messages lie elsewhere (TieredMessageStore; DefaultMetadataStore
// says where).
func tiered(root string) error {
	path, found, err := mentions(filepath.Join(root, "config", "tieredStoreMetadata.json"), "topic")
	if err != nil || !found {
		return err
	}
	return &Error{
		Path: path, What: "messages are kept in tiered storage",
		Do: "older messages would be missing here; when they are not needed any more, take the file away",
	}
}

// mentions looks for a text in a JSON file, and in the backup when the file is not there. It returns
// which of the two it read.
func mentions(path, text string) (read string, found bool, err error) {
	for _, path := range []string{path, path + ".bak"} {
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		return path, bytes.Contains(data, []byte(text)), err
	}
	return "", false, nil
}

// raft refuses a store whose log is DLedger's (enableDLegerCommitLog, up to 5.x: DLedgerCommitLog),
// which has another form and lies in dledger-<id>/data; commitlog holds at most what came before it.
func raft(root string) error {
	logs, err := filepath.Glob(filepath.Join(escape(root), "dledger-*", "data", "*"))
	if err != nil || len(logs) == 0 {
		return err
	}
	return &Error{
		Path: logs[0], What: "the log is one of DLedger (enableDLegerCommitLog)",
		Do: "copy the messages with RocketMQ into a store without it",
	}
}

// escape quotes what filepath.Match takes for patterns.
func escape(path string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(path)
}
