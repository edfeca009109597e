// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/client/admin"
	"github.com/skylarkmq/skylark/client/clienttest"
)

// The examples of README.md: each code block there is the function that one of them gives to the call
// that it begins with, or the body of a TestReadme, without a `return nil` at the end
// (TestReadmeIsWhatRuns).

// Connect.
func Example_connect() {
	atNameServer(func(ctx context.Context, nameServers []string) error {
		c, err := client.New(nameServers) // or New(nil, client.WithEnv()): NAMESRV_ADDR says where
		if err != nil {
			return err
		}
		defer c.Close(ctx) // settles what is under way, and waits for every goroutine
		return nil
	})
	// Output:
}

// Send a message.
func Example_send() {
	inCluster(scene{}, func(
		ctx context.Context, _ *client.Client, p *client.Producer, _ client.Handler,
	) error {
		res, err := p.Send(ctx, &client.Message{Topic: "created", Tag: "eu", Body: []byte("order 7")})
		if err != nil {
			return err // a *client.SendError: every attempt, the broker's code and words, what to do
		}
		fmt.Println(res.Status, res.Queue, res.Offset)
		return nil
	})
	// Output: SEND_OK created/broker-a/0 0
}

// Send without waiting, and hear of the result.
func Example_async() {
	inCluster(scene{}, func(
		ctx context.Context, _ *client.Client, p *client.Producer, _ client.Handler,
	) error {
		return p.SendAsync(ctx, made("event"), func(res client.SendResult, err error) {
			fmt.Println(res.Status, err) // SendAsync waits only while WithBuffer's bounds are full
		})
	})
	// Output: SEND_OK <nil>
}

// Send as fast as brokers take it, with bounded memory.
func Example_sendAll() {
	inCluster(scene{after: count}, func(
		ctx context.Context, _ *client.Client, p *client.Producer, _ client.Handler,
	) error {
		return p.SendAll(ctx, thousand()) // nil: all are stored; else a *client.SendAllError
	})
	// Output: 1000 messages
}

// Have many messages share a request.
func Example_linger() {
	inCluster(scene{after: count}, func(
		ctx context.Context, c *client.Client, _ *client.Producer, _ client.Handler,
	) error {
		batching, err := c.NewProducer("events", client.WithLinger(5*time.Millisecond, 64<<10))
		if err != nil {
			return err
		}
		return batching.SendAll(ctx, thousand()) // few requests; each message has its own result
	})
	// Output: 1000 messages
}

// Send a batch, with a result for each message.
func Example_batch() {
	inCluster(scene{}, func(
		ctx context.Context, _ *client.Client, p *client.Producer, _ client.Handler,
	) error {
		results, errs := p.SendBatch(ctx, made("a"), made("b"))
		for i, res := range results {
			fmt.Println(res.Offset, errs[i])
		}
		return nil
	})
	// Output:
	// 0 <nil>
	// 1 <nil>
}

// Consume as a member of a group, each message decoded.
func Example_consume() {
	order7 := &client.Message{Topic: "created", Tag: "eu", Body: []byte(`{"id":7,"total":42}`)}
	inCluster(scene{seed: []*client.Message{order7}, calls: 1}, func(
		ctx context.Context, c *client.Client, _ *client.Producer, bill client.Handler,
	) error {
		return c.Consume(ctx, "billing", client.HandleJSON(
			func(ctx context.Context, o order, m *client.Received) error {
				fmt.Println("order", o.ID, "total", o.Total)
				return bill(ctx, m) // nil: done; an error has it delivered again
			}), client.WithSubscription("created", client.Tags("eu", "us")))
	})
	// Output:
	// order 7 total 42
	// {"id":7,"total":42}
}

// Try a message again later.
func Example_retry() {
	inCluster(scene{seed: many("busy"), calls: 1}, func(
		ctx context.Context, c *client.Client, _ *client.Producer, bill client.Handler,
	) error {
		return c.Consume(ctx, "billing", func(ctx context.Context, m *client.Received) error {
			if m.Attempt == 1 {
				return client.RetryAfter(time.Second, errBusy) // errBusy itself: later each time
			}
			return bill(ctx, m)
		}, client.WithSubscription("created", client.All()), client.WithMaxRetries(5))
	})
	// Output: busy, attempt 2
}

// Give a message up.
func Example_deadLetter() {
	inCluster(scene{seed: many("bad", "good"), calls: 1}, func(
		ctx context.Context, c *client.Client, _ *client.Producer, bill client.Handler,
	) error {
		return c.Consume(ctx, "billing", func(ctx context.Context, m *client.Received) error {
			if string(m.Body) == "bad" {
				return client.DeadLetter(errBad) // to the topic %DLQ%billing; client.Skip drops it
			}
			return bill(ctx, m)
		}, client.WithSubscription("created", client.All()))
	})
	// Output: good
}

// Send messages that must keep their order.
func Example_orderingKey() {
	inCluster(scene{after: count}, func(
		ctx context.Context, _ *client.Client, p *client.Producer, _ client.Handler,
	) error {
		m := &client.Message{Topic: "created", OrderingKey: "order 7", Body: []byte("paid")}
		_, err := p.Send(ctx, m) // messages with one key go to one queue, in the order of the sends
		return err
	})
	// Output: 1 messages
}

// Consume them in that order, many keys at once.
func Example_ordered() {
	inCluster(scene{seed: keyed("7", "paid", "packed", "sent"), calls: 3}, func(
		ctx context.Context, c *client.Client, _ *client.Producer, bill client.Handler,
	) error {
		return c.Consume(ctx, "ledger", bill, client.WithSubscription("created", client.All()),
			client.WithOrdered(true)) // true: in order for each key; false: for each queue
	})
	// Output:
	// paid
	// packed
	// sent
}

// Deliver a message later.
func Example_delay() {
	inCluster(scene{after: next}, func(
		ctx context.Context, _ *client.Client, p *client.Producer, _ client.Handler,
	) error {
		m := &client.Message{Topic: "created", Body: []byte("remind"), Delay: time.Second}
		_, err := p.Send(ctx, m) // DelayLevel takes one of the broker's fixed delays instead
		return err
	})
	// Output: remind
}

// Deliver a message at a time, and take it back.
func Example_timer() {
	tomorrow := time.Now().Add(24 * time.Hour)
	inCluster(scene{after: count}, func(
		ctx context.Context, _ *client.Client, p *client.Producer, _ client.Handler,
	) error {
		res, err := p.Send(ctx, &client.Message{Topic: "created", Body: []byte("x"), DeliverAt: tomorrow})
		if err == nil {
			_, err = p.Recall(ctx, "created", res.RecallHandle)
		}
		return err
	})
	// Output: 0 messages
}

// Change a database and send the message together.
func Example_transaction() {
	var db database
	inCluster(scene{after: next}, func(
		ctx context.Context, c *client.Client, _ *client.Producer, _ client.Handler,
	) error {
		tp, err := c.NewTransactionProducer("shop-tx", db.paid) // asked about ends that got lost
		if err == nil {
			_, err = tp.Transact(ctx, made("paid"), db.pay) // commits; an error or a panic rolls back
		}
		return err
	})
	// Output: paid
}

// Ask, and wait for a consumer's answer.
func Example_request() {
	inCluster(scene{beside: answers}, func(
		ctx context.Context, _ *client.Client, p *client.Producer, _ client.Handler,
	) error {
		answer, err := p.Request(ctx, made("order 7"))
		if err != nil {
			return err
		}
		fmt.Println(string(answer.Body))
		return nil
	})
	// Output: price of order 7
}

// Answer.
func Example_reply() {
	inCluster(scene{beside: asks}, func(
		ctx context.Context, c *client.Client, p *client.Producer, _ client.Handler,
	) error {
		return c.Consume(ctx, "prices", func(ctx context.Context, m *client.Received) error {
			return p.Reply(ctx, m, append([]byte("price of "), m.Body...))
		}, client.WithSubscription("created", client.All()))
	})
	// Output: price of order 8
}

// Read at your own pace.
func Example_read() {
	inCluster(scene{seed: many("a", "b"), before: auditFromStart, reads: 2}, func(
		ctx context.Context, c *client.Client, _ *client.Producer, _ client.Handler,
	) error {
		for m, err := range c.Read(ctx, "audit", client.WithSubscription("created", client.All())) {
			if err != nil {
				return err
			}
			fmt.Println(string(m.Body)) // done when the loop asks for the next one
		}
		return nil
	})
	// Output:
	// a
	// b
}

// Consume only what an SQL condition on properties takes.
func Example_filter() {
	inCluster(scene{seed: priced(50, 200), calls: 1}, func(
		ctx context.Context, c *client.Client, _ *client.Producer, bill client.Handler,
	) error {
		return c.Consume(ctx, "large", bill,
			client.WithSubscription("created", client.SQL("total > 100 AND region IN ('eu', 'us')")))
	})
	// Output: total 200
}

// Have the broker hand out messages instead of queues.
func Example_pop() {
	inCluster(scene{seed: many("a"), calls: 1}, func(
		ctx context.Context, c *client.Client, _ *client.Producer, bill client.Handler,
	) error {
		return c.Consume(ctx, "billing", bill, client.WithSubscription("created", client.All()),
			client.WithPop(30*time.Second)) // a member that hangs holds up only what it has
	})
	// Output: a
}

// Trace messages.
func Example_trace() {
	inCluster(scene{after: count}, func(
		ctx context.Context, c *client.Client, _ *client.Producer, _ client.Handler,
	) error {
		traced, err := c.NewProducer("shop-traced", client.WithTrace("")) // and WithConsumerTrace
		if err == nil {
			_, err = traced.Send(ctx, made("order 7")) // mqadmin queryMsgTraceById shows its way
		}
		return err
	})
	// Output: 1 messages
}

// Make a topic.
func Example_topic() {
	inCluster(scene{}, func(
		ctx context.Context, c *client.Client, _ *client.Producer, _ client.Handler,
	) error {
		paid := admin.TopicConfig{Name: "paid", WriteQueues: 2, ReadQueues: 2}
		_, err := admin.New(c).PutTopic(ctx, paid, admin.Everywhere())
		return err // an *admin.PartialError when only some brokers failed
	})
	// Output:
}

// See how far behind a group is.
func Example_progress() {
	inCluster(scene{seed: many("a"), calls: 1, before: billed}, func(
		ctx context.Context, c *client.Client, _ *client.Producer, _ client.Handler,
	) error {
		progress, err := admin.New(c).Progress(ctx, "billing", "created")
		if err != nil {
			return err
		}
		fmt.Println("behind by", progress.Lag)
		return nil
	})
	// Output:
	// a
	// behind by 0
}

// Send the dead letters of a group again.
func Example_deadLetters() {
	inCluster(scene{seed: many("order 7"), calls: 1, before: buried}, func(
		ctx context.Context, c *client.Client, _ *client.Producer, _ client.Handler,
	) error {
		letters := admin.DeadLetterQuery{Group: "billing", Topic: "created"}
		done, err := admin.New(c).ResendDeadLetters(ctx, admin.Resend{Letters: letters})
		fmt.Println("sent again:", done.Resent) // a StateFile has it go on after a crash
		return err
	})
	// Output:
	// order 7
	// sent again: 1
}

// Have a group read again from a time.
func Example_reset() {
	yesterday := time.Now().Add(-24 * time.Hour)
	inCluster(scene{seed: many("a"), calls: 2, before: billed, after: billed}, func(
		ctx context.Context, c *client.Client, _ *client.Producer, _ client.Handler,
	) error {
		r := admin.Reset{Group: "billing", Topic: "created", To: admin.AtTime(yesterday)}
		_, err := admin.New(c).ResetOffsets(ctx, r) // whether members are online or not
		return err
	})
	// Output:
	// a
	// a
}

// Test a program against a real broker in the test's process.
func TestReadmeBilling(t *testing.T) {
	p := clienttest.Start(t, clienttest.WithTopics("created")).Producer(t)
	if _, err := p.Send(t.Context(), made("x")); err != nil {
		t.Error(err)
	}
}
