// SPDX-License-Identifier: Apache-2.0

// Package admin makes operator calls through a *client.Client: topics, consumer groups, offsets,
// messages, brokers and name servers, of Skylark and of Apache RocketMQ.
//
//	a := admin.New(c)
//	_, err := a.PutTopic(ctx, admin.TopicConfig{Name: "created"}, admin.Everywhere())
//	progress, err := a.Progress(ctx, "billing")
//
// An Admin has no state but its client: it starts nothing and need not be closed.
//
// Calls that go to several servers ask them at the same time and report what became of each: their
// results carry one entry for each server, and the error is a *PartialError when only some of them
// failed. Where a result is merged from several brokers it holds what could be learnt.
//
// Every error says what was tried and what to do next. errors.Is finds the causes: the sentinels of
// this package, those of package client, and context errors; errors.As finds *client.BrokerError.
//
// Names are as brokers have them: a topic or group of a namespace is written with its prefix.
// Times that are not known are zero.
package admin
