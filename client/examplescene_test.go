// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/client/admin"
	"github.com/skylarkmq/skylark/client/clienttest"
)

// scene is what stands around an example.
type scene struct {
	seed   []*client.Message // sent before
	calls  int               // of bill, after which the context ends
	reads  int               // messages a Reader hands out, after which it does
	before part              // nil: nothing
	beside part              // runs at the same time; when either ends, the other's context does
	after  part
}

// part is a step around an example. bill stands for the user's code: it prints the message.
type part func(
	ctx context.Context, c *client.Client, p *client.Producer, bill client.Handler,
) error

// atNameServer runs do beside a real name server and broker in this process.
func atNameServer(do func(ctx context.Context, nameServers []string) error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cluster, err := clienttest.New(clienttest.WithTopic("created", 1),
		clienttest.WithBrokerConfig("recallMessageEnable", "true"), // off in RocketMQ, as the next one
		clienttest.WithBrokerConfig("enablePropertyFilter", "true"))
	if err != nil {
		log.Fatal(err)
	}
	err = do(ctx, []string{cluster.NameServer()})
	if err := errors.Join(err, cluster.Close()); err != nil {
		log.Fatal(err)
	}
}

// inCluster runs do with a client and a producer of a real name server and broker.
func inCluster(s scene, do part) {
	atNameServer(func(ctx context.Context, nameServers []string) error {
		hook := &handedOut{left: s.reads}
		ctx, hook.stop = context.WithCancel(ctx)
		defer hook.stop()
		c, err := client.New(nameServers, client.WithHooks(hook))
		if err != nil {
			return err
		}
		p, err := c.NewProducer("shop")
		if err == nil {
			err = s.play(ctx, c, p, do)
		}
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			err = nil
		}
		return errors.Join(err, c.Close(context.WithoutCancel(ctx)))
	})
}

// handedOut is a hook that ends a context with the last message to be handed out.
type handedOut struct {
	mu   sync.Mutex
	left int
	stop context.CancelFunc
}

// OnReceive counts.
func (h *handedOut) OnReceive(ctx context.Context, _ *client.Received) context.Context {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.left--; h.left == 0 {
		h.stop()
	}
	return ctx
}

func (s scene) play(ctx context.Context, c *client.Client, p *client.Producer, do part) error {
	if _, errs := p.SendBatch(ctx, s.seed...); errors.Join(errs...) != nil {
		return errors.Join(errs...)
	}
	var mu sync.Mutex
	left := s.calls
	for _, step := range []part{s.before, s.beside.with(do), s.after} {
		if step == nil {
			continue
		}
		ctx, stop := context.WithCancel(ctx)
		err := step(ctx, c, p, func(_ context.Context, m *client.Received) error {
			mu.Lock()
			defer mu.Unlock()
			if m.Attempt > 1 {
				fmt.Fprintf(os.Stdout, "%s, attempt %d\n", m.Body, m.Attempt)
			} else {
				fmt.Fprintf(os.Stdout, "%s\n", m.Body)
			}
			if left--; left == 0 || s.before != nil { // a step before ends with the first one
				stop()
			}
			return nil
		})
		ended := ctx.Err() != nil
		stop()
		if err != nil && (!ended || !errors.Is(err, context.Canceled)) {
			return err
		}
		if err := p.Flush(ctx); err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
	}
	return nil
}

// with runs do, and the part beside it.
func (beside part) with(do part) part {
	if beside == nil {
		return do
	}
	return func(
		ctx context.Context, c *client.Client, p *client.Producer, bill client.Handler,
	) error {
		ctx, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() {
			ended <- beside(ctx, c, p, bill)
			stop()
		}()
		err := do(ctx, c, p, bill)
		stop()
		return errors.Join(err, <-ended)
	}
}

// count prints how many messages the topic has.
func count(ctx context.Context, c *client.Client, p *client.Producer, _ client.Handler) error {
	if err := p.Flush(ctx); err != nil {
		return err
	}
	status, err := admin.New(c).TopicStatus(ctx, "created")
	if err != nil {
		return err
	}
	n := int64(0)
	for _, q := range status.Queues {
		n += q.Max - q.Min
	}
	fmt.Fprintln(os.Stdout, n, "messages")
	return nil
}

// next prints the next message of the topic.
func next(ctx context.Context, c *client.Client, _ *client.Producer, bill client.Handler) error {
	for m, err := range c.Read(ctx, "", client.WithSubscription("created", client.All()),
		client.WithStart(client.Earliest)) {
		if err != nil {
			return err
		}
		return bill(ctx, m)
	}
	return nil
}

// auditFromStart has the group audit begin with the first message.
func auditFromStart(
	ctx context.Context, c *client.Client, _ *client.Producer, _ client.Handler,
) error {
	a := admin.New(c)
	_, err := a.PutGroup(ctx, admin.NewGroup("audit"), admin.Everywhere())
	if err == nil {
		_, err = a.ResetOffsets(ctx, admin.Reset{Group: "audit", Topic: "created", To: admin.AtStart()})
	}
	return err
}

// billed is the group billing at work.
func billed(ctx context.Context, c *client.Client, _ *client.Producer, bill client.Handler) error {
	return c.Consume(ctx, "billing", bill, client.WithSubscription("created", client.All()))
}

// buried is the group billing with a fault: what it gets goes to its dead letters.
func buried(ctx context.Context, c *client.Client, _ *client.Producer, bill client.Handler) error {
	return c.Consume(ctx, "billing", func(ctx context.Context, m *client.Received) error {
		return client.DeadLetter(errors.Join(errBad, bill(ctx, m)))
	}, client.WithSubscription("created", client.All()))
}

// answers is a consumer that answers, asks one that asks.
func answers(ctx context.Context, c *client.Client, p *client.Producer, _ client.Handler) error {
	return c.Consume(ctx, "prices", func(ctx context.Context, m *client.Received) error {
		return p.Reply(ctx, m, append([]byte("price of "), m.Body...))
	}, client.WithSubscription("created", client.All()))
}

func asks(ctx context.Context, _ *client.Client, p *client.Producer, bill client.Handler) error {
	answer, err := p.Request(ctx, made("order 8"))
	if err != nil {
		return err
	}
	return bill(ctx, answer)
}

// made is a message to the topic of the examples.
func made(body string) *client.Message {
	return &client.Message{Topic: "created", Body: []byte(body)}
}

func many(bodies ...string) []*client.Message {
	var ms []*client.Message
	for _, b := range bodies {
		ms = append(ms, made(b))
	}
	return ms
}

func keyed(key string, bodies ...string) []*client.Message {
	ms := many(bodies...)
	for _, m := range ms {
		m.OrderingKey = key
	}
	return ms
}

// priced makes a message for each total, with the properties that filters see.
func priced(totals ...int) []*client.Message {
	var ms []*client.Message
	for _, n := range totals {
		m := made("total " + strconv.Itoa(n))
		m.Properties = map[string]string{"total": strconv.Itoa(n), "region": "eu"}
		ms = append(ms, m)
	}
	return ms
}

// thousand yields messages.
func thousand() iter.Seq[*client.Message] {
	return func(yield func(*client.Message) bool) {
		for i := 0; i < 1000 && yield(made(strconv.Itoa(i))); i++ {
			continue
		}
	}
}

// order is what the bodies of some messages mean.
type order struct{ ID, Total int }

var (
	errBusy = errors.New("the bank is busy")
	errBad  = errors.New("cannot be billed")
)

// database knows which orders are paid.
type database struct{ ids sync.Map }

func (db *database) pay(_ context.Context, tx *client.Tx) error {
	db.ids.Store(tx.ID, true)
	return nil
}

func (db *database) paid(_ context.Context, m *client.Received) client.TxState {
	if _, ok := db.ids.Load(m.ID); ok {
		return client.TxCommitted
	}
	return client.TxRolledBack
}
