// SPDX-License-Identifier: Apache-2.0

// Package client is what an application uses to send to and read from a RocketMQ cluster, Skylark's
// or Apache's.
//
// A Client holds connections, routes and heartbeats of one cluster; producers, consumers and readers
// are made from it. Every value is safe for concurrent use, every call that can wait takes a
// context, and Close waits for all goroutines. Nothing is kept in package state and no environment
// is read.
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
// Consume and Read make a consumer or a reader for one call, SendAll sends a sequence.
//
// Sends wait for an answer (Send), are told of it by a callback (SendAsync), share requests
// (SendBatch, WithLinger) or ask for none (SendOneWay). Request waits for a consumer's reply, and a
// TransactionProducer sends messages that count only once a change of the application's own is made.
// WithTLS, WithCredentials, WithNamespace, WithResolver and WithHooks say how the cluster is reached
// and who hears of it. Errors are sentinels for errors.Is, *BrokerError for a refusal, *SendError with
// every attempt for a send; their texts end with what to do.
//
// A Consumer calls a handler for each message of its group's topics: at once or in order, with queues
// shared among the members, Java's included, or each message to all (WithBroadcast). What a handler
// returns steers what comes next: nil, RetryAfter, DeadLetter, Skip, or any error for another try. A
// Reader hands messages out when asked. Either stores positions only of what is done.
//
// A pull answer carries records exactly as the broker stores them, which is why brokers can send
// them from files; so this package decodes them with storage/record, the codec of the store.
package client
