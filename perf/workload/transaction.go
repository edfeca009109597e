// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skylarkmq/skylark/net/invoke"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/perf/measure"
)

// Transactions are the settings of a run that sends transactional messages, ends them, and answers
// the brokers' checks, as RocketMQ's TransactionProducer benchmark does.
type Transactions struct {
	NameServers []string `json:"name_servers"`
	Topic       string   `json:"topic"`
	Group       string   `json:"group"`
	// Credentials sign each request; nil: none is signed.
	Credentials *Credentials `json:"-"`
	Threads     int          `json:"threads"` // each sends one message after the other
	Size        int          `json:"size"`
	// SendRollback and SendUnknown are shares of messages, 0 to 1 together, that are rolled back at
	// once and left open; the others are committed.
	SendRollback float64 `json:"send_rollback"`
	SendUnknown  float64 `json:"send_unknown"`
	// CheckRollback and CheckUnknown are the same for each answer to a check.
	CheckRollback float64  `json:"check_rollback"`
	CheckUnknown  float64  `json:"check_unknown"`
	BatchID       int64    `json:"batch_id"` // checks of messages of other batches roll them back
	Pause         Duration `json:"pause"`    // of a thread after each message
	Duration      Duration `json:"duration"` // 0: until Count or the context ends
	Count         int64    `json:"count"`    // 0: no limit
	Timeout       Duration `json:"timeout"`
	BrokerPID     int      `json:"broker_pid,omitempty"`
}

// DefaultTransactions returns the defaults of RocketMQ's benchmark. Its batch id is the time in
// milliseconds.
func DefaultTransactions() Transactions {
	return Transactions{
		NameServers: []string{"127.0.0.1:9876"}, Topic: "BenchmarkTest",
		Group: "benchmark_transaction_producer", Threads: 32, Size: 2048,
		BatchID: time.Now().UnixMilli(), Timeout: Duration(3 * time.Second),
	}
}

const (
	threadsMax        = 4096
	transactionQueues = 1000 // that the benchmark asks for, for a new topic
	heartbeatEvery    = 30 * time.Second
)

func (t *Transactions) check() error {
	var errs []error
	bad := func(cond bool, format string, args ...any) {
		if cond {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	share := func(v float64) bool { return v >= 0 && v <= 1 }
	bad(len(t.NameServers) == 0, "no name server")
	bad(!t.Credentials.complete(), "credentials need an access key and a secret key")
	bad(t.Topic == "", "no topic")
	bad(t.Threads < 1 || t.Threads > threadsMax, "threads is %d, want 1 to %d", t.Threads, threadsMax)
	bad(t.Size < planSize || t.Size > sizeMax, "size is %d, want %d to %d bytes",
		t.Size, planSize, sizeMax)
	bad(!share(t.SendRollback) || !share(t.SendUnknown) || !share(t.SendRollback+t.SendUnknown),
		"send rollback and unknown rates are %v and %v, want 0 to 1 together",
		t.SendRollback, t.SendUnknown)
	bad(!share(t.CheckRollback) || !share(t.CheckUnknown) || !share(t.CheckRollback+t.CheckUnknown),
		"check rollback and unknown rates are %v and %v, want 0 to 1 together",
		t.CheckRollback, t.CheckUnknown)
	bad(t.Pause < 0, "send interval is negative")
	bad(t.Count < 0, "count is negative")
	bad(t.Timeout <= 0, "timeout must be positive")
	if len(errs) > 0 {
		return fmt.Errorf("workload: transactions: %w: %w", ErrSettings, errors.Join(errs...))
	}
	return nil
}

// transactor is one transactional load.
type transactor struct {
	*timing
	cfg     *Transactions
	own     part
	pool    *invoke.Pool
	targets []target
	checker *checker
	cancel  context.CancelFunc
	done    chan struct{}

	stopped atomic.Bool
	budget  atomic.Int64
	number  atomic.Int64 // of the last message
}

// RunTransactions sends and ends transactional messages until the duration is over, the count is
// reached or ctx ends. Unlike RunProduce it uses a goroutine for each thread and the connections of
// net/invoke: it is meant to be compatible, not cheap. The result's OK is false when no message was
// stored or a check came that should not have come.
func RunTransactions(ctx context.Context, cfg Transactions, out Output) (*measure.Result, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	ctl := newControl(cfg.NameServers, cfg.Credentials)
	defer ctl.close()
	targets, err := ctl.writable(ctx, cfg.Topic, 0)
	if err != nil {
		return nil, err
	}
	t := newTransactor(&cfg, targets, out)
	defer t.pool.Close()
	if err := t.heartbeat(ctx); err != nil {
		return nil, err
	}
	r := &run{
		timing: t.timing, duration: time.Duration(cfg.Duration), brokerPID: cfg.BrokerPID, out: out,
		loads: []load{t},
	}
	if err := r.measureLead(ctx); err != nil {
		return nil, err
	}
	res := t.own.result()
	res.Sent = t.number.Load()
	switch {
	case res.Messages == 0 && res.Sent > 0:
		res.OK, res.Problem = false, "no message was stored: see the broker's log"
	case t.checker.unexpected.Load() > 0:
		res.OK = false
		res.Problem = fmt.Sprintf("%d checks came for transactions that were ended",
			t.checker.unexpected.Load())
	}
	out.finish(res)
	if out.Reports != nil && !out.JSON {
		_, _ = fmt.Fprintln(out.Reports, t.own.line(t.own.rates.Rates(), time.Now()))
	}
	return res, nil
}

func newTransactor(cfg *Transactions, targets []target, out Output) *transactor {
	t := &transactor{
		timing: &timing{clock: measure.NewClock()}, cfg: cfg, targets: targets, done: make(chan struct{}),
	}
	t.budget.Store(cfg.Count)
	t.checker = newChecker(t, out)
	t.pool = invoke.NewPool(cfg.Credentials.pool(invoke.Config{
		Language: remoting.LanguageGo, Serialize: remoting.Binary, OnRequest: t.checker.request,
	}))
	rec := measure.NewRecorder(&t.gate)
	t.own = part{
		command: "transactions", from: "sent", settings: cfg, wanted: cfg.Count,
		recorders: []*measure.Recorder{rec}, tick: t.checker.tick,
		line: func(r measure.Rates, now time.Time) string {
			longest, _ := rec.TakeMax()
			return t.checker.line(r, now, longest)
		},
	}
	return t
}

func (t *transactor) part() *part              { return &t.own }
func (t *transactor) through() <-chan struct{} { return t.done }
func (t *transactor) stop()                    { t.stopped.Store(true); t.cancel() }
func (t *transactor) discard()                 {}

func (t *transactor) start(ctx context.Context) {
	ctx, t.cancel = context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	for i := range t.cfg.Threads {
		wg.Go(func() { t.thread(ctx, i) })
	}
	beats := make(chan struct{})
	go func() {
		defer close(beats)
		tick := time.NewTicker(heartbeatEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				_ = t.heartbeat(ctx) // the next one may reach the broker
			case <-ctx.Done():
				return
			}
		}
	}()
	go func() {
		wg.Wait()
		t.cancel()
		<-beats
		close(t.done)
	}()
}

// heartbeat tells each broker who answers the checks of the group.
func (t *transactor) heartbeat(ctx context.Context) error {
	body := protocol.Marshal(&protocol.HeartbeatData{
		ClientID:        fmt.Sprintf("perf@%d", os.Getpid()),
		ProducerDataSet: []protocol.ProducerData{{GroupName: t.cfg.Group}},
	})
	told := map[string]bool{}
	var errs []error
	for i := range t.targets {
		addr := t.targets[i].addr
		if told[addr] {
			continue
		}
		told[addr] = true
		one, cancel := context.WithTimeout(ctx, callTimeout)
		res, err := t.pool.Call(one, addr, &invoke.Request{Code: remoting.HeartBeat, Body: body})
		cancel()
		if err == nil {
			err = res.Err()
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("workload: heartbeat to %s: %w", addr, err))
		}
	}
	return errors.Join(errs...)
}

// thread sends one message after the other.
func (t *transactor) thread(ctx context.Context, index int) {
	rec := t.own.recorders[0]
	for turn := index; !t.stopped.Load(); turn++ {
		if t.cfg.Count > 0 && t.budget.Add(-1) < 0 {
			return
		}
		plan := t.checker.newPlan(t.number.Add(1))
		begin := t.clock.Now()
		cause, refused := t.transact(ctx, &t.targets[turn%len(t.targets)], &plan)
		took := t.clock.Now() - begin
		open := rec.Begin()
		switch {
		case cause == "" && open:
			rec.AnsweredLocked(1, int64(t.cfg.Size), took)
		case cause != "" && refused:
			rec.RefusedLocked(cause, 1)
		case cause != "":
			rec.UnansweredLocked(cause, 1)
		}
		rec.End()
		wait := time.Duration(t.cfg.Pause)
		if cause != "" {
			wait = max(wait, redialFirst)
		}
		if wait > 0 {
			timer := time.NewTimer(wait)
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
			}
		}
	}
}

// share draws a state from the shares of rollback and unknown.
func share(rollback, unknown float64) byte {
	switch v := rand.Float64(); {
	case v < rollback:
		return stateRollback
	case v < rollback+unknown:
		return stateUnknown
	}
	return stateCommit
}
