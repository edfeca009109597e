// SPDX-License-Identifier: Apache-2.0

// Package client is what an application uses to send to and read from a RocketMQ cluster, Skylark's
// or Apache's.
//
// A Client holds connections, routes and heartbeats of one cluster; producers, consumers and readers
// are made from it. Every value is safe for concurrent use, every call that can wait takes a context, and
// Close waits for all goroutines. Nothing is kept in package state and no environment is read.
//
//	c, err := client.New([]string{"127.0.0.1:9876"})
//	if err != nil {
//		return err
//	}
//	defer c.Close(ctx)
//	p, err := c.NewProducer("orders")
//	if err != nil {
//		return err
//	}
//	res, err := p.Send(ctx, &client.Message{Topic: "created", Body: body})
//
// A pull answer carries records exactly as the broker stores them, which is why brokers can send
// them from files; so this package decodes them with storage/record, the codec of the store.
package client
