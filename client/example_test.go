// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"errors"
	"log/slog"

	"github.com/skylarkmq/skylark/client"
)

func ExampleProducer_Send() {
	ctx := context.Background()
	c, err := client.New([]string{"127.0.0.1:9876"})
	if err != nil {
		slog.Error("options", "err", err)
		return
	}
	defer c.Close(ctx)
	p, err := c.NewProducer("orders")
	if err != nil {
		slog.Error("options", "err", err)
		return
	}
	res, err := p.Send(ctx, &client.Message{Topic: "created", Body: []byte("7"), Keys: []string{"7"}})
	if be := (*client.BrokerError)(nil); errors.As(err, &be) {
		slog.Error("refused", "code", be.Code, "broker", be.Broker)
		return
	}
	slog.Info("sent", "id", res.ID, "queue", res.Queue.String(), "offset", res.Offset)
}

func ExampleReader_Messages() {
	ctx := context.Background()
	c, err := client.New([]string{"127.0.0.1:9876"})
	if err != nil {
		slog.Error("options", "err", err)
		return
	}
	defer c.Close(ctx)
	r, err := c.NewReader("billing", client.WithSubscription("created", client.Tags("eu", "us")))
	if err != nil {
		slog.Error("options", "err", err)
		return
	}
	for m, err := range r.Messages(ctx) {
		if err != nil {
			slog.Error("reading", "err", err)
			return
		}
		slog.Info("received", "id", m.ID, "body", string(m.Body)) // done when the loop goes on
	}
}
