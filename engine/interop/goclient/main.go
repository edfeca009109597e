// SPDX-License-Identifier: Apache-2.0

// Command goclient runs Apache's Go client for the interop tests. It speaks the protocol of the Java
// driver beside it: one JSON object a line, {"id":1,"op":"producer.send","args":{...}} in, and
// {"id":1,"ok":true,"value":...} or {"id":1,"ok":false,"error":"...","message":"..."} out. It ends with
// its input.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/apache/rocketmq-client-go/v2/rlog"
)

type request struct {
	ID   int       `json:"id"`
	Op   string    `json:"op"`
	Args arguments `json:"args"`
}

type answer struct {
	ID      int    `json:"id"`
	OK      bool   `json:"ok"`
	Value   any    `json:"value,omitempty"`
	Error   string `json:"error,omitempty"`
	Message string `json:"message,omitempty"`
	Code    int    `json:"code,omitempty"`
}

// arguments are those of all commands together.
type arguments struct {
	NameServer                                   string `json:"namesrv"`
	Handle, Group, Instance                      string
	Topic, Body, Fill, Tags, Keys, OrderKey      string
	Mode, Expression, SQL, Prefix, Address       string
	Properties                                   map[string]string
	Messages                                     []arguments
	Size, Count, TimeoutMS, Queues, CompressOver int
	Failures                                     int
	MaxReconsume                                 int32 `json:"maxReconsume"`
	Offset                                       int64
	QueueID                                      *int
	Broker                                       string
	Orderly, Broadcast, Trace                    bool
	DelayLevel                                   int `json:"delayLevel"`
}

type operation func(arguments) (any, error)

func main() {
	rlog.SetLogLevel("error")
	ops := map[string]operation{"ping": func(arguments) (any, error) { return "pong", nil }}
	registerProducers(ops)
	registerTransactions(ops)
	registerPush(ops)
	registerPull(ops)
	registerAdmin(ops)
	out := json.NewEncoder(os.Stdout)
	var mu sync.Mutex
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(make([]byte, 1<<20), 64<<20)
	for in.Scan() {
		var r request
		if err := json.Unmarshal(in.Bytes(), &r); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		go func() {
			a := run(ops, r)
			mu.Lock()
			defer mu.Unlock()
			_ = out.Encode(a)
		}()
	}
}

// run keeps a panic of the client to the command that met it.
func run(ops map[string]operation, r request) (a answer) {
	a.ID = r.ID
	defer func() {
		if p := recover(); p != nil {
			a = answer{ID: r.ID, Error: "panic", Message: fmt.Sprint(p)}
		}
	}()
	op := ops[r.Op]
	if op == nil {
		return answer{ID: r.ID, Error: "unknown", Message: "no op " + r.Op}
	}
	value, err := op(r.Args)
	if err != nil {
		return answer{ID: r.ID, Error: fmt.Sprintf("%T", err), Message: err.Error(), Code: -1}
	}
	return answer{ID: r.ID, OK: true, Value: value}
}

// handles keeps objects that outlive a command.
type handles[T any] struct {
	mu    sync.Mutex
	next  atomic.Int32
	known map[string]T
}

func (h *handles[T]) add(v T) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.known == nil {
		h.known = map[string]T{}
	}
	name := "g" + strconv.Itoa(int(h.next.Add(1)))
	h.known[name] = v
	return name
}

func (h *handles[T]) get(name string) (T, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	v, ok := h.known[name]
	if !ok {
		return v, fmt.Errorf("no handle %q", name)
	}
	return v, nil
}

func (h *handles[T]) remove(name string) (T, error) {
	v, err := h.get(name)
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.known, name)
	return v, err
}
