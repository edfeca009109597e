// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

// atOnce bounds how many servers are asked at the same time.
const atOnce = 16

// Broker is one broker process. ID 0 is the master of its name.
type Broker struct {
	Cluster string
	Name    string
	ID      int64
	Addr    string // host:port
}

// String returns name (address), or the address of one without a name.
func (b Broker) String() string {
	if b.Name == "" {
		return b.Addr
	}
	return b.Name + " (" + b.Addr + ")"
}

// Target says which brokers a call goes to. The zero value is Everywhere.
type Target struct {
	cluster, broker, addr string
	slaves                bool
}

// Everywhere is the master of every broker that the name servers know.
func Everywhere() Target { return Target{} }

// InCluster is the master of every broker of a cluster.
func InCluster(name string) Target { return Target{cluster: name} }

// AtBroker is the master of the brokers of one name.
func AtBroker(name string) Target { return Target{broker: name} }

// AtAddr is the broker at host:port, whether the name servers know it or not.
func AtAddr(addr string) Target { return Target{addr: addr} }

// WithSlaves is the target with the slaves of its masters too.
func (t Target) WithSlaves() Target {
	t.slaves = true
	return t
}

func (t Target) String() string {
	switch {
	case t.addr != "":
		return "broker at " + t.addr
	case t.broker != "":
		return "broker " + t.broker
	case t.cluster != "":
		return "cluster " + t.cluster
	default:
		return "all brokers"
	}
}

// Answer is what one broker said.
type Answer[T any] struct {
	Broker Broker
	Value  T // with an Err, what was done before it; mostly zero
	Err    error
}

// Done is the answer of a broker that was told to do something.
type Done = Answer[struct{}]

// Failure is a server that did not do what it was asked.
type Failure struct {
	Broker Broker // without a name: a name server
	Err    error
}

// PartialError says which of several servers failed. Unwrap gives their errors.
type PartialError struct {
	Op     string
	Asked  int // servers
	Failed []Failure
}

func (e *PartialError) Error() string {
	parts := make([]string, len(e.Failed))
	for i, f := range e.Failed {
		parts[i] = f.Err.Error()
	}
	return fmt.Sprintf("admin: %s: %d of %d servers failed: %s",
		e.Op, len(e.Failed), e.Asked, strings.Join(parts, "; "))
}

// Unwrap returns the errors of the servers that failed.
func (e *PartialError) Unwrap() []error {
	errs := make([]error, len(e.Failed))
	for i, f := range e.Failed {
		errs[i] = f.Err
	}
	return errs
}

// Brokers returns every broker that the name servers know, sorted by cluster, name and id.
func (a *Admin) Brokers(ctx context.Context) ([]Broker, error) {
	var info protocol.ClusterInfo
	if err := a.askName(ctx, "list brokers", remoting.GetBrokerClusterInfo, nil, &info); err != nil {
		return nil, err
	}
	var list []Broker
	for name, data := range info.BrokerAddrTable {
		for id, addr := range data.BrokerAddrs {
			b := Broker{Cluster: clusterOf(&info, name, data), Name: name, ID: id, Addr: addr}
			list = append(list, b)
		}
	}
	slices.SortFunc(list, func(a, b Broker) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.ID, b.ID))
	})
	return list, nil
}

// clusterOf finds a broker's cluster: old name servers leave it out of the broker's data.
func clusterOf(info *protocol.ClusterInfo, name string, data protocol.BrokerData) string {
	if data.Cluster != "" {
		return data.Cluster
	}
	for cluster, names := range info.ClusterAddrTable {
		if slices.Contains(names, name) {
			return cluster
		}
	}
	return ""
}

// resolve finds the brokers of a target; ErrNoBroker when there is none.
func (a *Admin) resolve(ctx context.Context, op string, t Target) ([]Broker, error) {
	if t.addr != "" {
		return []Broker{a.brokerAt(ctx, t.addr)}, nil
	}
	all, err := a.Brokers(ctx)
	if err != nil {
		return nil, explain(op, err)
	}
	list := slices.DeleteFunc(all, func(b Broker) bool {
		return t.cluster != "" && b.Cluster != t.cluster || t.broker != "" && b.Name != t.broker ||
			b.ID != 0 && !t.slaves
	})
	if len(list) == 0 {
		return nil, &Error{
			Op: op, Err: fmt.Errorf("%s: %w", t, ErrNoBroker),
			Next: "Brokers lists those that the name servers know; only masters take changes",
		}
	}
	return list, nil
}

// brokerAt names the broker of an address, if a name server knows it.
func (a *Admin) brokerAt(ctx context.Context, addr string) Broker {
	if all, err := a.Brokers(ctx); err == nil {
		for _, b := range all {
			if b.Addr == addr {
				return b
			}
		}
	}
	return Broker{Addr: addr}
}

// each asks all brokers, several at once, and returns their answers in the order of the list. The
// error is nil when all succeeded.
func each[T any](
	ctx context.Context, op string, list []Broker, ask func(context.Context, Broker) (T, error),
) ([]Answer[T], error) {
	answers := make([]Answer[T], len(list))
	slots := make(chan struct{}, atOnce)
	var wg sync.WaitGroup
	for i, b := range list {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			v, err := ask(ctx, b)
			answers[i] = Answer[T]{Broker: b, Value: v, Err: err}
		})
	}
	wg.Wait()
	return answers, partial(op, answers)
}

func partial[T any](op string, answers []Answer[T]) error {
	e := &PartialError{Op: op, Asked: len(answers)}
	for _, x := range answers {
		if x.Err != nil {
			e.Failed = append(e.Failed, Failure{x.Broker, x.Err})
		}
	}
	switch {
	case len(e.Failed) == 0:
		return nil
	case e.Asked == 1:
		return e.Failed[0].Err
	default:
		return e
	}
}

// collect is each over the brokers of a target.
func collect[T any](
	ctx context.Context, a *Admin, op string, t Target, ask func(context.Context, Broker) (T, error),
) ([]Answer[T], error) {
	list, err := a.resolve(ctx, op, t)
	if err != nil {
		return nil, err
	}
	return each(ctx, op, list, ask)
}

// tell is collect for requests without an answer but success.
func (a *Admin) tell(
	ctx context.Context, op string, t Target, code remoting.RequestCode, h remoting.Header,
	body []byte,
) ([]Done, error) {
	return collect(ctx, a, op, t, func(ctx context.Context, b Broker) (struct{}, error) {
		_, err := a.ask(ctx, op, b, code, h, body)
		return struct{}{}, err
	})
}

// tellNames tells every name server.
func (a *Admin) tellNames(
	ctx context.Context, op string, code remoting.RequestCode, h remoting.Header, body []byte,
) ([]Done, error) {
	return eachName(ctx, a, op, func(ctx context.Context, b Broker) (struct{}, error) {
		_, err := a.ask(ctx, op, b, code, h, body)
		return struct{}{}, err
	})
}

// eachName is each over the name servers, which are brokers without a name.
func eachName[T any](
	ctx context.Context, a *Admin, op string, ask func(context.Context, Broker) (T, error),
) ([]Answer[T], error) {
	if len(a.c.NameServers()) == 0 { // a resolver that was not asked yet
		if err := a.c.Ping(ctx); err != nil {
			return nil, explain(op, err)
		}
	}
	var list []Broker
	for _, addr := range a.c.NameServers() {
		list = append(list, Broker{Addr: addr})
	}
	return each(ctx, op, list, ask)
}

// except returns the error without the failures that are one of the causes, which say that a broker
// has nothing to tell; when all brokers say so, it is kept.
func except[T any](op string, answers []Answer[T], err error, cause error) ([]Answer[T], error) {
	if err == nil {
		return answers, nil
	}
	kept := slices.DeleteFunc(slices.Clone(answers), func(x Answer[T]) bool {
		return x.Err != nil && errors.Is(x.Err, cause)
	})
	if len(kept) == 0 {
		return nil, answers[0].Err
	}
	return kept, partial(op, kept)
}

// brokersOf returns one broker process of each name that serves a topic: the master, else the
// slave with the smallest id.
func (a *Admin) brokersOf(ctx context.Context, op, topic string) ([]Broker, error) {
	route, err := a.TopicRoute(ctx, topic)
	if err != nil {
		return nil, err
	}
	var list []Broker
	for _, b := range route.Brokers {
		if x, ok := b.nearest(); ok {
			list = append(list, x)
		}
	}
	if len(list) == 0 {
		return nil, explain(op, fmt.Errorf("topic %s: %w", topic, client.ErrNoRoute))
	}
	return list, nil
}
