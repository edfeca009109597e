// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/skylarkmq/skylark/perf/measure"
)

// Bounds that keep a mistyped setting from taking the machine down.
const (
	connectionsMax = 10_000
	inFlightMax    = 8_192 // a connection; more could fill both socket buffers and lock up
	batchMax       = 16_384
	frameMax       = sizeMax + 1<<20 // bytes of a frame in either direction
	underWayMax    = 4 << 30         // bytes of all requests without an answer
	loopsMax       = 1024
	retriesMax     = 100
	headMost       = 4 << 10 // bytes of a request's header without properties
)

// ErrSettings is wrapped by errors that a change of the settings would avoid.
var ErrSettings = errors.New("bad settings")

// Duration is a time.Duration that JSON shows as text, as "10s".
type Duration time.Duration

// MarshalJSON writes the duration as text.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

// Output says where and how reports go.
type Output struct {
	// Reports receives header, report lines and the final line. Nil: nowhere.
	Reports io.Writer
	JSON    bool // one object per line
	// Classic prints only what RocketMQ's programs print; nil: more than that. It does not go with
	// View.
	Classic *Classic
	Every   time.Duration // between reports; 0: RocketMQ's 10 s
	// View shows the run while it goes on, in the place of report lines; nil: none.
	View View
	// HistogramLog opens what gets the latencies of each second of a part, see measure.Sampled. The
	// name is empty when the run has one part. Nil: none.
	HistogramLog func(part string) (io.Writer, error)
	// Waiting is called once for each topic that RunConsume waits for since it does not exist. Nil:
	// nobody is told.
	Waiting func(topic string)
}

// View shows a run on a terminal. Show is called once a second, and Close once before the result is
// printed; both from one goroutine.
type View interface {
	Show(s measure.Status)
	Close()
}

// Produce are the settings of a producing run. Zero values mean the defaults of DefaultProduce only
// where said so.
type Produce struct {
	NameServers []string `json:"name_servers"`
	Topic       string   `json:"topic"`
	// Topics above 1 spreads over Topic-0, Topic-1 and so on.
	Topics int `json:"topics"`
	// Queues is how many queues of each topic are used, and wanted of a topic created by this run;
	// 0: all.
	Queues      int    `json:"queues"`
	Group       string `json:"group"`
	Connections int    `json:"connections"`
	InFlight    int    `json:"in_flight"` // requests of a connection without an answer
	// Rate is messages a second over all connections; 0: closed loop, unless there are Steps.
	Rate float64 `json:"rate"`
	// Steps are rates one after the other, from the end of warm-up on, which itself has the first
	// one's. Without Duration and Count the run ends with the last of them, if that has an end.
	Steps []Step `json:"steps,omitempty"`
	// Burst, at a fixed rate, has the messages of a connection come due together, once in so long.
	// 0: each by itself, which costs generator and broker a system call for nearly every message.
	Burst Duration `json:"burst"`
	Size  int      `json:"size"` // bytes of each body, unless Sizes or Bodies says more
	// Sizes spreads the sizes of bodies; see perf/README.md. Empty: all have Size.
	Sizes string `json:"sizes,omitempty"`
	// Bodies names a file with a body on each line, taken in turn.
	Bodies string `json:"bodies,omitempty"`
	// Compressible is the share of a body that repeats itself, 0 to 1; the rest is random.
	Compressible float64 `json:"compressible"`
	// Compress is how bodies are compressed, once and before the run: zlib, lz4 or zstd; empty: not.
	Compress      string `json:"compress,omitempty"`
	CompressLevel int    `json:"compress_level,omitempty"`
	CompressOver  int    `json:"compress_over,omitempty"` // bytes: smaller bodies go as they are
	Batch         int    `json:"batch"`                   // messages of a request
	Tags          int    `json:"tags"`                    // distinct tags; 0: none
	Keys          bool   `json:"keys"`                    // a key for each message
	PropertySize  int    `json:"property_size"`
	// Properties are user properties of each message, as name=value.
	Properties []string `json:"properties,omitempty"`
	DelayLevel int      `json:"delay_level,omitempty"` // 1 to 18; 0: no delay
	Binary     bool     `json:"binary_header"`         // ROCKETMQ header form instead of JSON
	Warmup     Duration `json:"warmup"`
	Duration   Duration `json:"duration"` // after warm-up; 0: until Count or the context ends
	Count      int64    `json:"count"`    // messages in all, warm-up included; 0: no limit
	Timeout    Duration `json:"timeout"`  // for an answer; then the connection is made anew
	BrokerPID  int      `json:"broker_pid,omitempty"`
	Verify     bool     `json:"verify"` // number each message, with a checksum
	// Retries is how often a numbered message without an answer is sent again. It keeps its number and
	// its queue, and the moment its latency counts from.
	Retries int `json:"retries,omitempty"`
	// Loops is how many goroutines drive the connections; 0: one for every four processors.
	Loops int `json:"loops"`
	// Driver is how they wait for their sockets: epoll on Linux, net anywhere; empty: the best.
	Driver string `json:"driver,omitempty"`
	// Credentials sign each request, which makes its header binary; nil: none is signed.
	Credentials *Credentials `json:"-"`
}

// DefaultProduce returns RocketMQ's benchmark defaults where it has any: 128 bytes, 64 in flight on
// one connection, group benchmark_producer.
func DefaultProduce() Produce {
	return Produce{
		NameServers: []string{"127.0.0.1:9876"}, Topic: "BenchmarkTest", Topics: 1,
		Group: "benchmark_producer", Connections: 1, InFlight: 64, Size: 128, Batch: 1,
		Timeout: Duration(3 * time.Second), Compressible: 1, CompressLevel: 5, CompressOver: 4096,
	}
}

// paced reports whether messages have due moments.
func (p *Produce) paced() bool { return p.Rate > 0 || len(p.Steps) > 0 }

// LoopCount is how many goroutines drive the connections.
func (p *Produce) LoopCount() int {
	if p.Loops > 0 {
		return p.Loops
	}
	return max(runtime.NumCPU()/4, 1)
}

// requestSteps are the steps in requests a second.
func (p *Produce) requestSteps() []Step {
	steps := []Step{{Rate: p.Rate}}
	if len(p.Steps) > 0 {
		steps = slices.Clone(p.Steps)
		if p.Warmup > 0 {
			steps = slices.Insert(steps, 0, Step{Rate: steps[0].Rate, For: p.Warmup})
		}
	}
	for i := range steps {
		steps[i].Rate /= float64(p.Batch)
	}
	return steps
}

// rateAsked is the mean rate of the measured window, 0 for a closed loop and for steps without end.
func (p *Produce) rateAsked() float64 {
	whole := length(p.Steps)
	if len(p.Steps) == 0 || whole == 0 || whole != time.Duration(p.Duration) {
		return p.Rate
	}
	var sum float64
	for _, s := range p.Steps {
		sum += s.Rate * time.Duration(s.For).Seconds()
	}
	return sum / whole.Seconds()
}

func (p *Produce) check() error {
	var errs []error
	bad := func(cond bool, format string, args ...any) {
		if cond {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	bad(len(p.NameServers) == 0, "no name server")
	bad(!p.Credentials.complete(), "credentials need an access key and a secret key")
	bad(p.Topic == "", "no topic")
	bad(p.Topics < 1, "topics is %d, at least 1 is needed", p.Topics)
	bad(p.Queues < 0, "queues is negative")
	bad(p.Connections < 1 || p.Connections > connectionsMax,
		"connections is %d, want 1 to %d", p.Connections, connectionsMax)
	bad(p.InFlight < 1 || p.InFlight > inFlightMax,
		"in-flight is %d, want 1 to %d", p.InFlight, inFlightMax)
	bad(p.Rate < 0 || p.Rate > rateMax, "rate is %v, want 0 to %d", p.Rate, rateMax)
	bad(p.Rate > 0 && len(p.Steps) > 0, "rate and steps do not go together")
	bad(p.Burst < 0 || p.Burst > 0 && !p.paced(), "burst needs a rate and is not negative")
	bad(p.Loops < 0 || p.Loops > loopsMax, "loops is %d, want 0 to %d", p.Loops, loopsMax)
	bad(p.Driver != "" && p.Driver != driverNet && (p.Driver != driverEpoll || !haveEpoll),
		"driver is %q, want net, or epoll on Linux", p.Driver)
	bad(p.Size < 1 || p.Size > sizeMax, "size is %d, want 1 to %d bytes", p.Size, sizeMax)
	p.checkBodies(bad)
	bad(p.Batch < 1 || p.Batch > batchMax, "batch is %d, want 1 to %d", p.Batch, batchMax)
	bad((p.Size+p.PropertySize+256)*p.Batch > frameMax,
		"%d messages of %d bytes do not fit a frame of %d", p.Batch, p.Size, frameMax)
	bad(p.Tags < 0 || p.PropertySize < 0, "tags and property size are not negative")
	bad(p.PropertySize > 32_000, "property size is %d, at most 32000 fit", p.PropertySize)
	bad(p.Timeout <= 0, "timeout must be positive")
	bad(p.Retries < 0 || p.Retries > retriesMax, "retries is %d, want 0 to %d", p.Retries, retriesMax)
	bad(p.Retries > 0 && !p.Verify, "retries needs verify")
	if len(errs) > 0 {
		return fmt.Errorf("workload: produce: %w: %w", ErrSettings, errors.Join(errs...))
	}
	return nil
}

// checkBodies judges what says how bodies and properties look.
func (p *Produce) checkBodies(bad func(cond bool, format string, args ...any)) {
	least, mean := p.Size, float64(p.Size)
	if p.Sizes != "" {
		s, err := parseSizes(p.Sizes)
		bad(err != nil, "sizes: %v", err)
		least, mean = s.min, s.mean
	}
	underWay := (mean + float64(p.PropertySize)) * float64(p.Batch*p.InFlight*p.Connections)
	bad(underWay > underWayMax, "%.0f bytes would be under way, at most %d: lower in-flight, "+
		"connections, batch or size", underWay, int64(underWayMax))
	bad(p.Verify && p.Bodies == "" && least < measure.StampSize,
		"verify needs a size of at least %d bytes, not %d", measure.StampSize, least)
	bad(p.Verify && p.Bodies != "", "verify makes bodies of its own: it cannot go with bodies")
	bad(p.Bodies != "" && p.Sizes != "", "bodies and sizes do not go together")
	bad(p.Compressible < 0 || p.Compressible > 1, "compressible is %v, want 0 to 1", p.Compressible)
	if p.Compress != "" {
		_, err := codecNamed(p.Compress)
		bad(err != nil, "compress is %q, want zlib, lz4 or zstd", p.Compress)
		bad(p.Batch > 1, "compress does not go with batch: brokers refuse compressed batches")
		bad(p.Verify, "compress does not go with verify: bodies are compressed before the run")
		bad(p.CompressLevel < 0 || p.CompressLevel > 22, "compress level is %d, want 0 to 22",
			p.CompressLevel)
		bad(p.CompressOver < 0, "compress over is negative")
	}
	for _, own := range p.Properties {
		name, value, ok := strings.Cut(own, "=")
		bad(!ok || name == "" || value == "", "property %q is not name=value", own)
		bad(strings.ContainsAny(own, "\x01\x02"), "property %q has a separator in it", own)
	}
	bad(p.DelayLevel < 0 || p.DelayLevel > 18, "delay level is %d, want 0 to 18", p.DelayLevel)
	bad(p.DelayLevel > 0 && p.Verify, "verify expects messages at once: no delay level goes with it")
}

func (p *Produce) topics() []string { return topicNames(p.Topic, p.Topics) }

func topicNames(topic string, n int) []string {
	if n == 1 {
		return []string{topic}
	}
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%d", topic, i)
	}
	return names
}

// Kinds of filter expressions.
const (
	filterTag   = "TAG"
	filterSQL92 = "SQL92"
)

// Start is where a consuming run begins in each queue.
type Start string

// The starts.
const (
	First  Start = "first"  // the oldest message there is
	Last   Start = "last"   // what comes from now on
	Stored Start = "stored" // the group's stored offset, First without one
	Resume Start = "resume" // the group's stored offset, Last without one
)

// Consume are the settings of a consuming run.
type Consume struct {
	NameServers []string `json:"name_servers"`
	Topic       string   `json:"topic"`
	Topics      int      `json:"topics"`
	Queues      int      `json:"queues"` // of each topic; 0: all
	Group       string   `json:"group"`
	// Groups above 1 reads everything that often, as Group-0, Group-1 and so on.
	Groups      int    `json:"groups"`
	Connections int    `json:"connections"`           // of each group, and at most one for each queue
	PullBatch   int    `json:"pull_batch"`            // messages asked for in one pull
	Filter      string `json:"filter"`                // tag or SQL92 expression; empty: all
	FilterType  string `json:"filter_type,omitempty"` // TAG, which empty means too, or SQL92
	// FailRate is the share of messages that count as failed, 0 to 1; they are not sent back.
	FailRate float64  `json:"fail_rate,omitempty"`
	From     Start    `json:"from"`
	Commit   bool     `json:"commit"` // store offsets, carried by the pulls
	Suspend  Duration `json:"suspend"`
	// Delay makes a slow consumer: after a pull the next one of that queue waits so long for each
	// message of it.
	Delay      Duration `json:"delay,omitempty"`
	Binary     bool     `json:"binary_header"`
	Warmup     Duration `json:"warmup"`
	Duration   Duration `json:"duration"`
	Count      int64    `json:"count"`
	UntilEnd   bool     `json:"until_end"` // stop when every queue has been read to its end
	BrokerPID  int      `json:"broker_pid,omitempty"`
	Verify     bool     `json:"verify"`
	AllowSwaps bool     `json:"allow_swaps"` // see measure.Faults.Swapped
	// Late is the age beyond which a numbered message is late: from its producer to here, or for one
	// from before the run into the store. 0: none is. It compares clocks of up to three hosts.
	Late Duration `json:"late,omitempty"`
	// EndToEnd counts latency from the moment a message was due, which numbered ones tell. Others are
	// not counted.
	EndToEnd bool `json:"end_to_end,omitempty"`
	// Credentials sign each request, which makes its header binary; nil: none is signed.
	Credentials *Credentials `json:"-"`
}

// DefaultConsume returns the defaults: from the first message, 32 messages a pull as RocketMQ's
// push consumer asks for, group benchmark_consumer.
func DefaultConsume() Consume {
	return Consume{
		NameServers: []string{"127.0.0.1:9876"}, Topic: "BenchmarkTest", Topics: 1,
		Group: "benchmark_consumer", Groups: 1, Connections: 4, PullBatch: 32, From: First,
		Suspend: Duration(15 * time.Second),
	}
}

func (c *Consume) check() error {
	var errs []error
	bad := func(cond bool, format string, args ...any) {
		if cond {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	bad(len(c.NameServers) == 0, "no name server")
	bad(!c.Credentials.complete(), "credentials need an access key and a secret key")
	bad(c.Topic == "", "no topic")
	bad(c.Topics < 1, "topics is %d, at least 1 is needed", c.Topics)
	bad(c.Queues < 0, "queues is negative")
	bad(c.Groups < 1, "groups is %d, at least 1 is needed", c.Groups)
	bad(c.Connections < 1 || c.Connections > connectionsMax,
		"connections is %d, want 1 to %d", c.Connections, connectionsMax)
	bad(c.PullBatch < 1, "pull batch is %d, at least 1 is needed", c.PullBatch)
	bad(c.From != First && c.From != Last && c.From != Stored && c.From != Resume,
		"from is %q, want first, last, stored or resume", c.From)
	bad(c.FilterType != "" && c.FilterType != filterTag && c.FilterType != filterSQL92,
		"filter type is %q, want %s or %s", c.FilterType, filterTag, filterSQL92)
	bad(c.FailRate < 0 || c.FailRate > 1, "fail rate is %v, want 0 to 1", c.FailRate)
	bad(c.Suspend < 0, "suspend is negative")
	bad(c.Delay < 0 || c.Delay > Duration(time.Minute), "consume delay is %s, want 0 to 1m",
		time.Duration(c.Delay))
	bad(c.Late < 0, "late is negative")
	bad(c.Late > 0 && !c.Verify, "late needs verify")
	filtered := c.Filter != "" && strings.TrimSpace(c.Filter) != "*"
	bad(c.Verify && filtered, "verify needs every message: it cannot go with a filter")
	bad(c.Verify && c.Groups > 1, "verify needs one group, not %d", c.Groups)
	if len(errs) > 0 {
		return fmt.Errorf("workload: consume: %w: %w", ErrSettings, errors.Join(errs...))
	}
	return nil
}
