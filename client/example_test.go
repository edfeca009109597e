// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/client/admin"
	"github.com/skylarkmq/skylark/client/clienttest"
)

// The examples of README.md: each code block there is what one of them gives to inCluster, or the
// body of a TestReadme (TestReadmeIsWhatRuns).

// inCluster runs do with a client and a producer of a real name server and broker in this process.
func inCluster(do func(ctx context.Context, c *client.Client, p *client.Producer) error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cluster, err := clienttest.New(clienttest.WithTopic("created", 1))
	if err != nil {
		log.Fatal(err)
	}
	c, err := client.New([]string{cluster.NameServer()})
	if err == nil {
		var p *client.Producer
		if p, err = c.NewProducer("shop"); err == nil {
			err = do(ctx, c, p)
		}
		err = errors.Join(err, c.Close(ctx))
	}
	if err := errors.Join(err, cluster.Close()); err != nil {
		log.Fatal(err)
	}
}

// Send a message, and look at a refusal.
func Example_send() {
	inCluster(func(ctx context.Context, c *client.Client, p *client.Producer) error {
		res, err := p.Send(ctx, &client.Message{
			Topic: "created", Tag: "eu", Keys: []string{"7"}, Body: []byte("order 7"),
		})
		if be := (*client.BrokerError)(nil); errors.As(err, &be) {
			return fmt.Errorf("broker %s refused with code %d: %w", be.Broker, be.Code, err)
		} else if err != nil {
			return err
		}
		fmt.Println(res.Status, res.Queue, res.Offset)
		return nil
	})
	// Output: SEND_OK created/broker-a/0 0
}

// Send as fast as the broker takes it, with bounded memory.
func Example_highRate() {
	inCluster(func(ctx context.Context, c *client.Client, p *client.Producer) error {
		var failed atomic.Int64
		count := func(_ client.SendResult, err error) {
			if err != nil {
				failed.Add(1)
			}
		}
		for i := range 1000 {
			m := &client.Message{Topic: "created", Body: fmt.Append(nil, i)}
			if err := p.SendAsync(ctx, m, count); err != nil {
				return err // it waits while WithBuffer's messages or bytes are full
			}
		}
		err := p.Flush(ctx)
		fmt.Println("failed:", failed.Load(), err)
		return nil
	})
	// Output: failed: 0 <nil>
}

// Have many messages share a request.
func Example_linger() {
	inCluster(func(ctx context.Context, c *client.Client, p *client.Producer) error {
		batching, err := c.NewProducer("shop-events", client.WithLinger(5*time.Millisecond, 64<<10))
		if err != nil {
			return err
		}
		var stored atomic.Int64
		for range 10_000 { // some twenty requests; each message has its own result
			err := batching.SendAsync(ctx, &client.Message{Topic: "created", Body: []byte("event")},
				func(res client.SendResult, err error) {
					if err == nil && res.Status == client.Stored {
						stored.Add(1)
					}
				})
			if err != nil {
				return err
			}
		}
		err = batching.Flush(ctx)
		fmt.Println("stored:", stored.Load(), err)
		return nil
	})
	// Output: stored: 10000 <nil>
}

// Send a batch, with a result for each message.
func Example_batch() {
	inCluster(func(ctx context.Context, c *client.Client, p *client.Producer) error {
		results, errs := p.SendBatch(ctx,
			&client.Message{Topic: "created", Body: []byte("a")},
			&client.Message{Topic: "created", Body: []byte("b")})
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
	inCluster(func(ctx context.Context, c *client.Client, p *client.Producer) error {
		order7 := &client.Message{Topic: "created", Tag: "eu", Body: []byte(`{"id":7,"total":42}`)}
		if _, err := p.Send(ctx, order7); err != nil {
			return err
		}
		type order struct{ ID, Total int }
		k, err := c.NewConsumer("billing", client.WithSubscription("created", client.Tags("eu", "us")),
			client.WithStart(client.Earliest), client.WithConcurrency(64))
		if err != nil {
			return err
		}
		ctx, stop := context.WithCancel(ctx) // in a program signal.NotifyContext: Run then drains
		handle := func(ctx context.Context, o order, m *client.Received) error {
			fmt.Println("order", o.ID, "total", o.Total, "attempt", m.Attempt)
			stop()
			return nil // done; an error has it delivered again
		}
		return k.Run(ctx, client.HandleJSON(handle))
	})
	// Output: order 7 total 42 attempt 1
}

// Steer what becomes of a message that failed.
func Example_retry() {
	inCluster(func(ctx context.Context, c *client.Client, p *client.Producer) error {
		if _, errs := p.SendBatch(ctx, made("busy"), made("bad")); errors.Join(errs...) != nil {
			return errors.Join(errs...)
		}
		k, err := c.NewConsumer("billing", client.WithSubscription("created", client.All()),
			client.WithStart(client.Earliest), client.WithMaxRetries(5))
		if err != nil {
			return err
		}
		ctx, stop := context.WithCancel(ctx)
		return k.Run(ctx, func(ctx context.Context, m *client.Received) error {
			switch {
			case string(m.Body) == "bad":
				return client.DeadLetter(errors.New("cannot be billed")) // to the topic %DLQ%billing
			case m.Attempt == 1:
				return client.RetryAfter(time.Second, errors.New("bank is busy"))
			}
			fmt.Println(string(m.Body), "attempt", m.Attempt)
			stop()
			return nil
		})
	})
	// Output: busy attempt 2
}

// Keep the order of messages with one key, and work on many keys at once.
func Example_ordered() {
	inCluster(func(ctx context.Context, c *client.Client, p *client.Producer) error {
		for i := range 4 {
			m := &client.Message{Topic: "created", OrderingKey: "7", Body: fmt.Append(nil, "step ", i)}
			if _, err := p.Send(ctx, m); err != nil {
				return err
			}
		}
		k, err := c.NewConsumer("ledger", client.WithSubscription("created", client.All()),
			client.WithStart(client.Earliest), client.WithOrdered(true)) // true: keys in parallel
		if err != nil {
			return err
		}
		ctx, stop := context.WithCancel(ctx)
		return k.Run(ctx, func(ctx context.Context, m *client.Received) error {
			fmt.Println(m.OrderingKey, string(m.Body))
			if string(m.Body) == "step 3" {
				stop()
			}
			return nil
		})
	})
	// Output:
	// 7 step 0
	// 7 step 1
	// 7 step 2
	// 7 step 3
}

// Deliver later.
func Example_delay() {
	inCluster(func(ctx context.Context, c *client.Client, p *client.Producer) error {
		sent := time.Now()
		m := &client.Message{Topic: "created", Body: []byte("remind"), Delay: time.Second} // or DeliverAt
		if _, err := p.Send(ctx, m); err != nil {
			return err // p.Recall withdraws it by the RecallHandle of the result
		}
		r, err := c.NewReader("", client.WithSubscription("created", client.All()),
			client.WithStart(client.Earliest))
		if err != nil {
			return err
		}
		ms, err := r.Poll(ctx, 1)
		if err != nil {
			return err
		}
		fmt.Println(string(ms[0].Body), time.Since(sent) >= time.Second)
		return nil
	})
	// Output: remind true
}

// Change a database and send the message together.
func Example_transaction() {
	inCluster(func(ctx context.Context, c *client.Client, _ *client.Producer) error {
		paid := map[string]bool{} // a database
		check := func(_ context.Context, m *client.Received) client.TxState {
			if paid[m.ID] { // the broker asks any process of the group when it has not heard of the end
				return client.TxCommitted
			}
			return client.TxRolledBack
		}
		tp, err := c.NewTransactionProducer("shop-tx", check)
		if err != nil {
			return err
		}
		for _, cause := range []error{nil, errors.New("card declined")} {
			_, err := tp.Transact(ctx, made("paid"), func(_ context.Context, tx *client.Tx) error {
				paid[tx.ID] = cause == nil
				return cause // nil commits; an error, or a panic, rolls back
			})
			fmt.Println(err)
		}
		return nil
	})
	// Output:
	// <nil>
	// card declined
}

// Ask, and wait for a consumer's answer.
func Example_request() {
	inCluster(func(ctx context.Context, c *client.Client, p *client.Producer) error {
		k, err := c.NewConsumer("prices", client.WithSubscription("created", client.All()),
			client.WithStart(client.Earliest))
		if err != nil {
			return err
		}
		serving, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() {
			ended <- k.Run(serving, func(ctx context.Context, m *client.Received) error {
				return p.Reply(ctx, m, append([]byte("price of "), m.Body...))
			})
		}()
		answer, err := p.Request(ctx, made("order 7"))
		if err == nil {
			fmt.Println(string(answer.Body))
		}
		stop()
		return errors.Join(err, <-ended)
	})
	// Output: price of order 7
}

// Read with an iterator, at your own pace.
func Example_pull() {
	inCluster(func(ctx context.Context, c *client.Client, p *client.Producer) error {
		if _, errs := p.SendBatch(ctx, made("a"), made("b")); errors.Join(errs...) != nil {
			return errors.Join(errs...)
		}
		r, err := c.NewReader("billing", client.WithSubscription("created", client.All()),
			client.WithStart(client.Earliest))
		if err != nil {
			return err
		}
		for m, err := range r.Messages(ctx) {
			if err != nil {
				return err
			}
			fmt.Println(string(m.Body)) // done when the loop asks for the next one
			if string(m.Body) == "b" {
				return r.Commit(ctx, m)
			}
		}
		return nil
	})
	// Output:
	// a
	// b
}

// Read again from a time.
func Example_seek() {
	inCluster(func(ctx context.Context, c *client.Client, p *client.Producer) error {
		before := time.Now()
		if _, errs := p.SendBatch(ctx, made("a"), made("b")); errors.Join(errs...) != nil {
			return errors.Join(errs...)
		}
		queues, err := c.Queues(ctx, "created")
		if err != nil {
			return err
		}
		r, err := c.NewReader("") // without a group: no stored position
		if err != nil {
			return err
		}
		if err := errors.Join(r.Assign(queues...), r.SeekTime(ctx, queues[0], before)); err != nil {
			return err
		}
		ms, err := r.Poll(ctx, 10)
		fmt.Println(len(ms) > 0 && string(ms[0].Body) == "a", err)
		return nil
	})
	// Output: true <nil>
}

// Make a topic, and see how far a group is.
func Example_admin() {
	inCluster(func(ctx context.Context, c *client.Client, p *client.Producer) error {
		a := admin.New(c)
		paid := admin.TopicConfig{Name: "paid", WriteQueues: 2, ReadQueues: 2}
		if _, err := a.PutTopic(ctx, paid, admin.Everywhere()); err != nil {
			return err // an *admin.PartialError when only some brokers failed
		}
		status, err := a.TopicStatus(ctx, "paid")
		if err != nil {
			return err
		}
		progress, err := a.Progress(ctx, "billing", "paid")
		fmt.Println(len(status.Queues), progress.Lag, err)
		return nil
	})
	// Output: 2 0 <nil>
}

// Send the dead letters of a group again.
func Example_deadLetters() {
	inCluster(func(ctx context.Context, c *client.Client, p *client.Producer) error {
		k, err := c.NewConsumer("billing", client.WithSubscription("created", client.All()),
			client.WithStart(client.Earliest))
		if err != nil {
			return err
		}
		if _, err := p.Send(ctx, made("order 7")); err != nil {
			return err
		}
		consuming, stop := context.WithCancel(ctx)
		bug := func(context.Context, *client.Received) error {
			stop()
			return client.DeadLetter(errors.New("bug"))
		}
		if err := k.Run(consuming, bug); err != nil {
			return err
		}
		a := admin.New(c) // the bug is repaired; skylark admin resendDeadLetters does the same
		letters := admin.DeadLetterQuery{Group: "billing", Topic: "created"}
		for l, err := range a.DeadLetters(ctx, letters) {
			fmt.Println(string(l.Body), "tried", l.ReconsumeTimes, err)
		}
		done, err := a.ResendDeadLetters(ctx, admin.Resend{Letters: letters}) // StateFile: go on after a crash
		fmt.Println("resent", done.Resent, err)
		return nil
	})
	// Output:
	// order 7 tried 1 <nil>
	// resent 1 <nil>
}

// Test your program against a real broker in the test's process.
func TestReadmeBilling(t *testing.T) {
	cluster := clienttest.Start(t, clienttest.WithTopics("created"), clienttest.WithoutAutoCreate())
	p, err := cluster.Client(t).NewProducer("shop", client.WithSendTimeout(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	if err := cluster.Broker(0).Kill(); err != nil { // Start brings it back with all it had taken
		t.Fatal(err)
	}
	m := &client.Message{Topic: "created", Body: []byte("x")}
	if _, err := p.Send(t.Context(), m); err == nil {
		t.Error("a dead broker took a message")
	}
}

// made is a message to the topic of the examples.
func made(body string) *client.Message {
	return &client.Message{Topic: "created", Body: []byte(body)}
}
