// SPDX-License-Identifier: Apache-2.0

// Command recovery measures how long a store takes to start: after a clean stop, after the death of its
// process, and when queues and index are made from the log alone. It fills a store itself, in a process of
// its own that then kills itself, and prints a line for each start.
//
//	go run ./perf/recovery -dir /var/tmp/r -segments 60 -segment-mib 16 -queues 10000 -body 1024
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/record"
)

type options struct {
	dir              string
	segments, queues int
	segmentMiB       int64
	body             int
	child            int
	onlyClean        bool
}

func main() {
	var o options
	flag.StringVar(&o.dir, "dir", "", "directory of the store, which must not exist")
	flag.IntVar(&o.segments, "segments", 4, "log files to fill")
	flag.Int64Var(&o.segmentMiB, "segment-mib", 1024, "size of a log file in MiB")
	flag.IntVar(&o.queues, "queues", 64, "queues to spread messages over, eight for each topic")
	flag.IntVar(&o.body, "body", 1024, "bytes of a message's body")
	flag.BoolVar(&o.onlyClean, "only-clean", false, "only measure starts after a clean stop")
	flag.IntVar(&o.child, "fill", 0, "for this program's own use: fill so many log files, and die")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := o.run(ctx)
	if o.child > 0 {
		err = o.fill()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "recovery:", err)
		os.Exit(1)
	}
}

func (o *options) config() storage.Config {
	cfg := storage.DefaultConfig(o.dir)
	cfg.SegmentSize = o.segmentMiB << 20
	// Only a clean stop writes the checkpoint, so that it is known what lies behind it.
	cfg.QueueFlushThorough = time.Hour
	// No file goes, however full the disk is.
	cfg.Retention.Forcibly, cfg.Retention.Hours, cfg.Retention.MaxUsedRatio = false, nil, 101
	cfg.DiskFullRatio, cfg.DiskFreeRatio, cfg.BallastBytes = 101, 100, 0
	return cfg
}

// fill appends messages until so many log files are full, and dies without a word to the store.
func (o *options) fill() error {
	s, err := storage.Open(o.config())
	if err != nil {
		return err
	}
	body := bytes.Repeat([]byte("recovery "), o.body/9+1)[:o.body]
	host := netip.MustParseAddrPort("127.0.0.1:10911")
	es := make([]storage.Entry, 64)
	topics := make([][]byte, (o.queues+7)/8)
	for i := range topics {
		topics[i] = fmt.Appendf(nil, "Topic%d", i)
	}
	end := s.Info().Wrote + record.PhysicalOffset(int64(o.child)*o.segmentMiB<<20)
	if s.Info().Wrote == 0 {
		end -= 128 << 10 // the last file is full, and there is no next one
	}
	for n := 0; s.Info().Wrote < end; {
		for i := range es {
			q := n % o.queues
			var props []byte
			props = record.AppendProperty(props, "UNIQ_KEY", fmt.Sprintf("0A0000010000%020X", n))
			props = record.AppendProperty(props, "KEYS", fmt.Sprintf("order-%d", n))
			props = record.AppendProperty(props, "TAGS", "paid")
			es[i] = storage.Entry{Draft: record.Draft{
				Topic: topics[q/8], QueueID: int32(q % 8), BornMS: time.Now().UnixMilli(), BornHost: host,
				StoreHost: host, Body: body, Properties: props, TagsCode: record.TagsCode([]byte("paid")),
			}}
			n++
		}
		s.Append(es)
		for i := range es {
			if es[i].Err != nil {
				return es[i].Err
			}
		}
	}
	return syscall.Kill(os.Getpid(), syscall.SIGKILL)
}

// die fills n more log files in a process that is killed.
func (o *options) die(ctx context.Context, n int) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self, "-dir", o.dir, "-segments", fmt.Sprint(o.segments),
		"-segment-mib", fmt.Sprint(o.segmentMiB), "-queues", fmt.Sprint(o.queues), "-body", fmt.Sprint(o.body),
		"-fill", fmt.Sprint(n))
	cmd.Stderr = os.Stderr
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && !exit.Exited() {
		return nil // by the signal
	}
	return fmt.Errorf("filling: it ended with %w instead of being killed", err)
}

func (o *options) run(ctx context.Context) error {
	if o.child > 0 {
		return nil
	}
	if _, err := os.Stat(o.dir); o.dir == "" || err == nil {
		return fmt.Errorf("-dir %q is empty or exists", o.dir)
	}
	fmt.Fprintf(os.Stdout, "%d log files of %d MiB, %d queues, bodies of %d bytes; %d cores\n", o.segments, o.segmentMiB,
		o.queues, o.body, runtime.GOMAXPROCS(0))
	if err := o.die(ctx, o.segments); err != nil {
		return err
	}
	if err := o.start("killed, nothing vouched for"); err != nil {
		return err
	}
	for range 3 {
		if err := o.start("clean stop"); err != nil {
			return err
		}
	}
	if o.onlyClean {
		return nil
	}
	if err := o.die(ctx, 1); err != nil {
		return err
	}
	if err := o.start("killed, one log file behind the checkpoint"); err != nil {
		return err
	}
	for _, folder := range []string{"consumequeue", "index"} {
		if err := os.RemoveAll(filepath.Join(o.dir, folder)); err != nil {
			return err
		}
	}
	if err := o.start("queues and index deleted"); err != nil {
		return err
	}
	busy := cpu()
	done, err := storage.Rebuild(ctx, o.config())
	if err != nil {
		return err
	}
	size := int64(done.End - done.From)
	busy = cpu() - busy
	fmt.Fprintf(os.Stdout, "%-44s %d MB in %v (CPU %v), %.0f MB/s, %.0f MB/CPU-s (%d records, %d units, %d index files)\n",
		"rebuild:", size/1e6, done.Took.Round(time.Millisecond), busy.Round(time.Millisecond),
		float64(size)/1e6/done.Took.Seconds(), float64(size)/1e6/busy.Seconds(), done.Records, done.Units,
		done.IndexFiles)
	return nil
}

// cpu is what this process has used: on a machine that others work on it says more than the time.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// start opens the store, waits for the index, closes it, and prints how long each took.
func (o *options) start(what string) error {
	began, busy := time.Now(), cpu()
	s, err := storage.Open(o.config())
	if err != nil {
		return err
	}
	opened, openedBusy := time.Since(began), cpu()-busy
	info := s.Info()
	indexFrom := info.Indexed
	for s.Info().Indexed < info.Dispatched {
		if _, err := s.Query("Topic0", "none", 1, 0, 1<<60); err != nil {
			return err
		}
	}
	indexed, indexedBusy := time.Since(began), cpu()-busy
	if err := s.Close(); err != nil {
		return err
	}
	r := info.Recovery
	read := float64(info.Wrote-r.From) / 1e6
	fmt.Fprintf(os.Stdout, "%-44s open %8v (CPU %v); of %d log files read %.0f MB in %v, %.0f MB/s (%d records, %d units "+
		"put into %d queues); index %d MB, done after %v (CPU %v)\n",
		what+":", opened.Round(time.Millisecond), openedBusy.Round(time.Millisecond),
		(int64(info.Wrote-info.Min)+o.segmentMiB<<20-1)/(o.segmentMiB<<20), read, r.Read.Round(time.Millisecond),
		read/r.Read.Seconds(), r.Records, r.Units, info.Queues, int64(info.Dispatched-indexFrom)/1e6,
		indexed.Round(time.Millisecond), indexedBusy.Round(time.Millisecond))
	return nil
}
