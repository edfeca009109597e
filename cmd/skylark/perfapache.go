// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skylarkmq/skylark/perf/workload"
)

// apacheOption is an option of a RocketMQ benchmark program. All take a value.
type apacheOption struct {
	short, long string
	def         string
	about       string
}

// apacheOptions reads a command line as those programs do: "-ri 1000", "-w64", "--topic t",
// "--topic=t". Options with two letters are why the usual flags cannot do it.
type apacheOptions struct {
	list   []apacheOption
	values map[string]string // by short name
	help   bool
	errs   []error
}

func (o *apacheOptions) parse(a *app, args []string) error {
	o.values = map[string]string{}
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		switch arg {
		case "-h", "--help":
			o.help = true
			return nil
		case "--json":
			a.json = true
			continue
		}
		opt, value, has := o.find(arg)
		if opt == nil {
			return misuse{fmt.Errorf("unknown option %q", arg)}
		}
		if !has {
			if len(args) == 0 {
				return misuse{fmt.Errorf("option %s needs a value", arg)}
			}
			value, args = args[0], args[1:]
		}
		o.values[opt.short] = strings.TrimSpace(value)
	}
	return nil
}

func (o *apacheOptions) find(arg string) (opt *apacheOption, value string, has bool) {
	if long, ok := strings.CutPrefix(arg, "--"); ok {
		name, value, has := strings.Cut(long, "=")
		for i := range o.list {
			if o.list[i].long == name {
				return &o.list[i], value, has
			}
		}
		return nil, "", false
	}
	short, ok := strings.CutPrefix(arg, "-")
	if !ok {
		return nil, "", false
	}
	for i := range o.list {
		if o.list[i].short == short || o.list[i].long == short {
			return &o.list[i], "", false
		}
	}
	for i := range o.list { // the value follows without a blank
		if rest, ok := strings.CutPrefix(short, o.list[i].short); ok && len(o.list[i].short) == 1 {
			return &o.list[i], rest, true
		}
	}
	return nil, "", false
}

func (o *apacheOptions) text(short string) string {
	if v, ok := o.values[short]; ok {
		return v
	}
	for i := range o.list {
		if o.list[i].short == short {
			return o.list[i].def
		}
	}
	panic("no option " + short)
}

func (o *apacheOptions) number(short string, low, high int64) int64 {
	n, err := strconv.ParseInt(o.text(short), 10, 64)
	if err != nil || n < low || n > high {
		o.errs = append(o.errs, fmt.Errorf("-%s is %q, want %d to %d", short, o.text(short), low, high))
	}
	return n
}

func (o *apacheOptions) share(short string) float64 {
	v, err := strconv.ParseFloat(o.text(short), 64)
	if err != nil || !(v >= 0 && v <= 1) {
		o.errs = append(o.errs, fmt.Errorf("-%s is %q, want 0 to 1", short, o.text(short)))
	}
	return v
}

// yes is Java's Boolean.parseBoolean: anything but "true" is false.
func (o *apacheOptions) yes(short string) bool { return strings.EqualFold(o.text(short), "true") }

func (o *apacheOptions) servers() []string {
	return (&perfFlags{nameServers: o.text("n")}).servers()
}

// credentials are those of a command line with access control; nil without.
func (o *apacheOptions) credentials() *workload.Credentials {
	if !o.yes("a") {
		return nil
	}
	return &workload.Credentials{AccessKey: o.text("ak"), SecretKey: o.text("sk")}
}

// common reads what all programs have and says what is left out.
func (o *apacheOptions) common(a *app) workload.Output {
	if o.yes("m") {
		_, _ = fmt.Fprintln(a.stderr, "skylark: -m: no message trace is sent")
	}
	interval := o.number("ri", 100, math.MaxInt32)
	return workload.Output{
		Reports: a.stdout, JSON: a.json, Every: time.Duration(interval) * time.Millisecond,
	}
}

func (o *apacheOptions) failed() error {
	if len(o.errs) > 0 {
		return misuse{errors.Join(o.errs...)}
	}
	return nil
}

func (o *apacheOptions) usage(out io.Writer, name string) {
	_, _ = fmt.Fprintf(out, "usage: skylark perf %s [option value]...\n", name)
	for _, opt := range o.list {
		_, _ = fmt.Fprintf(out, " %-32s %s, Default: %s\n", "-"+opt.short+",--"+opt.long+" <arg>",
			opt.about, opt.def)
	}
	_, _ = fmt.Fprintf(out, " %-32s One JSON object a line\n", "--json")
}

// apacheCommand makes a command with the options of a RocketMQ program.
func (a *app) apacheCommand(
	name, program, about, example string, list []apacheOption,
	run func(cmd *cobra.Command, o *apacheOptions) error,
) *cobra.Command {
	servers := defaultNameServer
	if v, ok := a.env("NAMESRV_ADDR"); ok && v != "" {
		servers = v
	}
	common := []apacheOption{
		{"a", "aclEnable", "false", "Acl Enable"},
		{"ak", "accessKey", "rocketmq2", "Acl access key"},
		{"m", "msgTraceEnable", "false", "Message Trace Enable, no trace is sent"},
		{"n", "namesrvAddr", servers, "Name server address list, eg: '192.168.0.1:9876;192.168.0.2:9876'"},
		{"ri", "reportInterval", "10000", "The number of ms between reports"},
		{"sk", "secretKey", "12345678", "Acl secret key"},
	}
	return &cobra.Command{
		Use:   name,
		Short: "Take the options of RocketMQ's " + program + " benchmark and print its lines",
		Long: about + "\n\nOptions and output are those of org.apache.rocketmq.example.benchmark." +
			program + "; -h lists them. Besides its\nlines nothing is printed; with --json the result " +
			"stands last. Report lines begin with the tenth second.",
		Example:            example,
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			o := &apacheOptions{list: append(list, common...)}
			if err := o.parse(a, args); err != nil {
				return err
			}
			if o.help {
				o.usage(a.stdout, name)
				return nil
			}
			return run(cmd, o)
		},
	}
}

// apacheSendOptions are those that producer and batch producer share.
func apacheSendOptions() []apacheOption {
	return []apacheOption{
		{"c", "compressEnable", "false", "Enable compress msg over 4K"},
		{"ch", "compressOverHowMuch", "4096", "Compress message when body over how much(unit Byte)"},
		{"cl", "compressLevel", "5", "Message compressed level"},
		{"ct", "compressType", "ZLIB", "Message compressed type"},
		{"k", "keyEnable", "false", "Message Key Enable"},
		{"l", "tagCount", "0", "Tag count"},
		{"p", "propertySize", "0", "Property Size"},
		{"s", "messageSize", "128", "Message Size"},
		{"t", "topic", "BenchmarkTest", "Topic name"},
		{"w", "threadCount", "64", "Thread count"},
	}
}

// produce turns the shared options into settings. Each thread waits for its answer, over the one
// connection that a client has to each broker.
func (o *apacheOptions) produce() (workload.Produce, *workload.Classic) {
	set := workload.DefaultProduce()
	set.NameServers, set.Topic, set.Binary = o.servers(), o.text("t"), true
	set.Credentials = o.credentials()
	set.Size = int(o.number("s", 1, 64<<20))
	set.Keys, set.Tags = o.yes("k"), int(o.number("l", 0, 1_000_000))
	set.PropertySize = int(o.number("p", 0, 32_000))
	set.InFlight = int(o.number("w", 1, 8192))
	if o.yes("c") {
		set.Compress = strings.ToLower(o.text("ct"))
		set.CompressLevel = int(o.number("cl", 0, 22))
		set.CompressOver = int(o.number("ch", 0, math.MaxInt32))
	}
	return set, &workload.Classic{Threads: set.InFlight, Trace: o.yes("m"), DelayLevel: 1}
}

func (a *app) perfApacheProducerCommand() *cobra.Command {
	return a.apacheCommand("apache-producer", "Producer",
		"Sends messages, each thread one after the other, or with -y as many at once as may wait.",
		"  skylark perf apache-producer -n 127.0.0.1:9876 -t demo -w 64 -s 1024 -q 1000000",
		append(apacheSendOptions(),
			apacheOption{"d", "delayEnable", "false", "Delay message Enable"},
			apacheOption{"e", "delayLevel", "1", "Delay message level"},
			apacheOption{"q", "messageQuantity", "0", "Send message quantity, 0: running forever"},
			apacheOption{"y", "asyncEnable", "false", "Enable async produce"},
		),
		func(cmd *cobra.Command, o *apacheOptions) error {
			out := o.common(a)
			set, classic := o.produce()
			set.Count = o.number("q", 0, math.MaxInt64)
			classic.DelayLevel = int(o.number("e", 1, 18))
			if classic.Delay = o.yes("d"); classic.Delay {
				set.DelayLevel = classic.DelayLevel
			}
			if classic.Async = o.yes("y"); classic.Async {
				const mostWaiting = 8192 // the Java client lets 10 000 wait
				set.InFlight = mostWaiting
				if _, given := o.values["w"]; !given {
					classic.Threads = 1
				}
			}
			if err := o.failed(); err != nil {
				return err
			}
			out.Classic = classic
			res, err := workload.RunProduce(cmd.Context(), set, out)
			return a.finish(err, res)
		})
}

func (a *app) perfApacheBatchProducerCommand() *cobra.Command {
	return a.apacheCommand("apache-batch-producer", "BatchProducer",
		"Sends batches, each thread one after the other, until it is interrupted.",
		"  skylark perf apache-batch-producer -n 127.0.0.1:9876 -t demo -w 8 -b 32",
		append(apacheSendOptions(),
			apacheOption{"b", "batchSize", "16", "Batch Size"},
			apacheOption{"q", "messageQuantity", "0", "Messages in all, 0: running forever"},
		),
		func(cmd *cobra.Command, o *apacheOptions) error {
			out := o.common(a)
			set, classic := o.produce()
			set.Batch = int(o.number("b", 2, 16_384))
			set.Count = o.number("q", 0, math.MaxInt64)
			set.Group = "benchmark_batch_producer"
			set.Compress = "" // the Java client does not compress batches either
			if err := o.failed(); err != nil {
				return err
			}
			out.Classic = classic
			res, err := workload.RunProduce(cmd.Context(), set, out)
			return a.finish(err, res)
		})
}

func (a *app) perfApacheConsumerCommand() *cobra.Command {
	return a.apacheCommand("apache-consumer", "Consumer",
		"Reads all queues of a topic from where the group stopped, or for a new group from the end, until "+
			"it is\ninterrupted. Members of a group are not coordinated: one process reads everything. What "+
			"-r lets fail is\ncounted and not sent back.",
		"  skylark perf apache-consumer -n 127.0.0.1:9876 -t demo -g readers",
		[]apacheOption{
			{"c", "clientRebalanceEnable", "true", "Read and not used"},
			{"e", "expression", "", "filter expression content file path.ie: ./test/expr"},
			{"f", "filterType", "", "TAG, SQL92"},
			{"g", "group", "benchmark_consumer", "Consumer group name"},
			{"p", "group prefix enable", "false", "Is group prefix enable"},
			{"q", "messageQuantity", "0", "Messages in all, 0: running forever"},
			{"r", "fail rate", "0", "consumer fail rate"},
			{"t", "topic", "BenchmarkTest", "Topic name"},
			{"w", "threadCount", "20", "Thread count"},
		},
		func(cmd *cobra.Command, o *apacheOptions) error {
			out := o.common(a)
			set := workload.DefaultConsume()
			set.NameServers, set.Topic, set.Group = o.servers(), o.text("t"), o.text("g")
			set.Credentials = o.credentials()
			set.Binary, set.Commit, set.From, set.Connections = true, true, workload.Resume, 1
			set.FailRate, set.Count = o.share("r"), o.number("q", 0, math.MaxInt64)
			classic := &workload.Classic{
				Threads: int(o.number("w", 1, 100_000)), Trace: o.yes("m"), Suffix: o.yes("p"),
				FilterType: o.text("f"), FilterFile: o.text("e"),
			}
			if classic.Suffix {
				set.Group += fmt.Sprintf("_%d", time.Now().UnixMilli()%100)
			}
			if classic.FilterType != "" {
				set.FilterType = classic.FilterType
				text, err := os.ReadFile(classic.FilterFile)
				if err != nil {
					o.errs = append(o.errs, fmt.Errorf("-e: reading the filter expression: %w", err))
				}
				set.Filter = strings.TrimSpace(string(text))
			}
			if err := o.failed(); err != nil {
				return err
			}
			out.Classic = classic
			res, err := workload.RunConsume(cmd.Context(), set, out)
			return a.finish(err, res)
		})
}

func (a *app) perfApacheTransactionCommand() *cobra.Command {
	return a.apacheCommand("apache-transaction-producer", "TransactionProducer",
		"Sends transactional messages and answers the brokers' checks, until it is interrupted. Exit code 1 "+
			"when a\ncheck came for a transaction that was ended.",
		"  skylark perf apache-transaction-producer -n 127.0.0.1:9876 -t demo -w 8 -su 0.1",
		[]apacheOption{
			{"b", "test batch id", "", "test batch id; the time in milliseconds without it"},
			{"cr", "check rollback rate", "0.0", "Check rollback rate"},
			{"cu", "check unknown rate", "0.0", "Check unknown rate"},
			{"i", "send interval", "0", "sleep interval in millis between messages"},
			{"q", "messageQuantity", "0", "Messages in all, 0: running forever"},
			{"s", "messageSize", "2048", "Message Size"},
			{"sr", "send rollback rate", "0.0", "Send rollback rate"},
			{"su", "send unknown rate", "0.0", "Send unknown rate"},
			{"t", "topic", "BenchmarkTest", "Topic name"},
			{"w", "threadCount", "32", "Thread count"},
		},
		func(cmd *cobra.Command, o *apacheOptions) error {
			out := o.common(a)
			set := workload.DefaultTransactions()
			set.NameServers, set.Topic, set.Credentials = o.servers(), o.text("t"), o.credentials()
			set.Threads, set.Size = int(o.number("w", 1, 4096)), int(o.number("s", 37, 64<<20))
			set.SendRollback, set.SendUnknown = o.share("sr"), o.share("su")
			set.CheckRollback, set.CheckUnknown = o.share("cr"), o.share("cu")
			set.Pause = millis(int(o.number("i", 0, math.MaxInt32)))
			set.Count = o.number("q", 0, math.MaxInt64)
			if o.text("b") != "" {
				set.BatchID = o.number("b", math.MinInt64, math.MaxInt64)
			}
			if err := o.failed(); err != nil {
				return err
			}
			out.Classic = &workload.Classic{}
			res, err := workload.RunTransactions(cmd.Context(), set, out)
			return a.finish(err, res)
		})
}
