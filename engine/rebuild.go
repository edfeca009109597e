// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"

	"github.com/skylarkmq/skylark/storage"
)

// Rebuild makes queues and index of the store that cfg describes anew from its log, as
// storage.Rebuild does; the tables say what kind of queues a topic has. It fails while a broker
// holds the store.
func Rebuild(ctx context.Context, cfg Config) (storage.Rebuilt, error) {
	b, err := New(cfg)
	if err != nil {
		return storage.Rebuilt{}, err
	}
	b.cfg.Lock, err = storage.LockDir(b.cfg.StoreRoot)
	if err != nil {
		return storage.Rebuilt{}, err
	}
	if err := b.openTopics(); err != nil {
		_ = b.cfg.Lock.Close()
		return storage.Rebuilt{}, err
	}
	return storage.Rebuild(ctx, b.storeConfig())
}
