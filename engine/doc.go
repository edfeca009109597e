// SPDX-License-Identifier: Apache-2.0

// Package engine is the broker: it reads the configuration, opens the store and the tables, wires
// the processors to the event loops, and starts and stops all of it in order.
//
//	cfg := engine.Default()
//	cfg.StoreRoot = "./skylark-data"
//	cfg.NameServers = "127.0.0.1:9876"
//	b, err := engine.New(cfg)
//	if err != nil { ... }
//	if err := b.Start(ctx); err != nil { ... }
//	defer b.Close(ctx)
//
// Reading order: broker.go (what there is), dispatch.go (how a command finds its processor), then
// processor/send.go and processor/pull.go. New, Start and Close are called once each, from one
// goroutine; everything else may be called from any.
package engine
