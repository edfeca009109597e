// SPDX-License-Identifier: Apache-2.0

package workload

// Option is one option of a command of `skylark perf`, without its dashes.
type Option struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Workload is a named set of options, so that figures of different days and machines are of the
// same load. Options given on the command line win over it.
type Workload struct {
	Name    string   `json:"name"`
	About   string   `json:"about"`
	Produce []Option `json:"produce,omitempty"` // nil: it does not produce
	Consume []Option `json:"consume,omitempty"` // nil: it does not consume
	// Together are options of commands that do both; nil: they take Produce.
	Together []Option `json:"together,omitempty"`
}

// Use is a command that a workload has options for.
type Use struct {
	Command string
	Options []Option
}

// Uses lists the commands that the workload has options for.
func (w Workload) Uses() []Use {
	var uses []Use
	for _, u := range []Use{
		{"produce", w.Produce},
		{"consume", w.Consume},
		{"mixed|latency|verify", w.Together},
	} {
		if u.Options != nil {
			uses = append(uses, u)
		}
	}
	return uses
}

// All returns the named workloads. Duration and warm-up are the caller's.
func All() []Workload {
	const topic = "perf"
	return []Workload{
		{
			Name:  "ingest-small",
			About: "1 KiB messages, single sends, 4 connections with 64 in flight each",
			Produce: []Option{
				{"topic", topic}, {"size", "1024"}, {"connections", "4"}, {"in-flight", "64"},
			},
		},
		{
			Name:  "ingest-batch",
			About: "1 KiB messages in batches of 32, 4 connections with 4 in flight each",
			Produce: []Option{
				{"topic", topic},
				{"size", "1024"},
				{"connections", "4"},
				{"in-flight", "4"},
				{"batch", "32"},
			},
		},
		{
			Name:  "request-reply",
			About: "1 KiB messages, 64 connections that each wait for their answer",
			Produce: []Option{
				{"topic", topic}, {"size", "1024"}, {"connections", "64"}, {"in-flight", "1"},
			},
		},
		{
			Name:  "fixed-rate",
			About: "1 KiB messages at 10 000 a second, latency from the due moment",
			Produce: []Option{
				{"topic", topic}, {"size", "1024"}, {"connections", "4"}, {"rate", "10000"},
			},
		},
		{
			Name:    "tail-consume",
			About:   "pulls at the end of the queues while 'fixed-rate' or another load produces",
			Consume: []Option{{"topic", topic}, {"from", "last"}, {"connections", "4"}},
		},
		{
			Name:  "catch-up",
			About: "pulls a backlog from its first message, 32 messages a pull, one connection",
			Consume: []Option{
				{"topic", topic}, {"from", "first"}, {"connections", "1"}, {"pull-batch", "32"},
			},
		},
		{
			Name:  "fan-out",
			About: "5 groups read all that is produced at 10 000 messages a second",
			Produce: []Option{
				{"topic", topic}, {"size", "1024"}, {"connections", "4"}, {"rate", "10000"},
			},
			Consume: []Option{
				{"topic", topic}, {"from", "last"}, {"connections", "2"}, {"groups", "5"},
			},
		},
		{
			Name:  "mixed",
			About: "closed-loop sends of 1 KiB while a group reads at the end",
			Produce: []Option{
				{"topic", topic}, {"size", "1024"}, {"connections", "2"}, {"in-flight", "32"},
			},
			Consume: []Option{{"topic", topic}, {"from", "last"}, {"connections", "2"}},
			Together: []Option{
				{"topic", topic},
				{"size", "1024"},
				{"connections", "2"},
				{"in-flight", "32"},
				{"consumer-connections", "2"},
			},
		},
	}
}

// Named returns the workload of that name.
func Named(name string) (w Workload, ok bool) {
	for _, w := range All() {
		if w.Name == name {
			return w, true
		}
	}
	return Workload{}, false
}

// Names returns the names of all workloads.
func Names() []string {
	var names []string
	for _, w := range All() {
		names = append(names, w.Name)
	}
	return names
}
