// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/skylarkmq/skylark/storage/inspect"
	"github.com/skylarkmq/skylark/storage/record"
)

// logFlags select records of the log.
type logFlags struct {
	filter   inspect.Filter
	since    string
	until    string
	offset   int64
	count    int
	withBody bool
	hex      bool
}

func (f *logFlags) add(flags *pflag.FlagSet, count int) {
	flags.StringVar(&f.filter.Topic, "topic", "", "only this topic")
	flags.Int32Var(&f.filter.Queue, "queue", -1, "only this queue")
	flags.StringVar(&f.filter.Key, "key", "", "only messages with this key or unique id")
	flags.StringVar(&f.since, "since", "", "only what was stored from this time on, as 2026-01-31T15:04:05Z")
	flags.StringVar(&f.until, "until", "", "only what was stored before this time")
	flags.Int64Var(&f.offset, "offset", -1, "begin with the record at this offset of the log")
	flags.IntVar(&f.count, "count", count, "records at most, 0 for all")
}

func (f *logFlags) complete() error {
	for _, t := range []struct {
		flag, text string
		to         *time.Time
	}{{"--since", f.since, &f.filter.From}, {"--until", f.until, &f.filter.To}} {
		if t.text == "" {
			continue
		}
		at, err := time.Parse(time.RFC3339, t.text)
		if err != nil {
			return misuse{fmt.Errorf("%s %q is no time like 2026-01-31T15:04:05Z", t.flag, t.text)}
		}
		*t.to = at
	}
	if f.count < 0 {
		return misuse{fmt.Errorf("--count is %d, it cannot be negative", f.count)}
	}
	return nil
}

// each calls do for the selected records.
func (f *logFlags) each(
	ctx context.Context, a *app, d *inspect.Dir, do func(inspect.Entry) error,
) error {
	if err := f.complete(); err != nil {
		return err
	}
	from := d.Min()
	if f.offset >= 0 {
		from = record.PhysicalOffset(f.offset)
		if _, err := d.Record(from); err != nil {
			return err
		}
	}
	found := 0
	end, err := d.Records(ctx, from, a.progress(), func(e inspect.Entry) error {
		if !f.filter.Match(e.View) {
			return nil
		}
		if err := do(e); err != nil {
			return err
		}
		if found++; found == f.count {
			return inspect.ErrStop
		}
		return nil
	})
	return errors.Join(err, a.damage(end))
}

func (a *app) inspectLogCommand() *cobra.Command {
	f := &logFlags{}
	cmd := a.inspectLeaf("log", "List records of the log",
		func(ctx context.Context, d *inspect.Dir) error {
			return f.each(ctx, a, d, func(e inspect.Entry) error { return a.printRecord(e, f) })
		})
	f.add(cmd.Flags(), 100)
	cmd.Flags().BoolVar(&f.withBody, "body", false, "print bodies too")
	cmd.Flags().BoolVar(&f.hex, "hex", false, "print the bytes of each record")
	return cmd
}

func (a *app) inspectExportCommand() *cobra.Command {
	f := &logFlags{withBody: true}
	cmd := a.inspectLeaf("export", "Write messages as JSON, one a line",
		func(ctx context.Context, d *inspect.Dir) error {
			return f.each(ctx, a, d, func(e inspect.Entry) error {
				return a.printJSON(recordJSON(e, true))
			})
		})
	f.add(cmd.Flags(), 0)
	return cmd
}

func (a *app) printRecord(e inspect.Entry, f *logFlags) error {
	if a.json {
		v := recordJSON(e, f.withBody)
		if f.hex {
			v["hex"] = hex.EncodeToString(e.View.Bytes())
		}
		return a.printJSON(v)
	}
	v := e.View
	id, _ := record.Property(v.Properties(), "UNIQ_KEY")
	_, err := fmt.Fprintf(a.stdout, "%d %s topic=%s queue=%d offset=%d size=%d body=%d id=%s%s\n",
		e.At, time.UnixMilli(v.StoreMS()).UTC().Format("2006-01-02T15:04:05.000Z"), v.Topic(), v.QueueID(),
		v.QueueOffset(), v.TotalSize(), len(v.Body()), id, fault(e))
	if err == nil && f.withBody {
		if utf8.Valid(v.Body()) {
			_, err = fmt.Fprintf(a.stdout, "  %s\n", v.Body())
		} else {
			_, err = fmt.Fprintf(a.stdout, "  %q\n", v.Body())
		}
	}
	if err == nil && f.hex {
		_, err = fmt.Fprint(a.stdout, hex.Dump(v.Bytes()))
	}
	return err
}

func fault(e inspect.Entry) string {
	if !e.Sound {
		return " WRONG CHECK SUM"
	}
	return ""
}

// recordJSON names the fields as RocketMQ's tools do.
func recordJSON(e inspect.Entry, body bool) map[string]any {
	v := e.View
	properties := map[string]string{}
	record.EachProperty(v.Properties(), func(name, value []byte) bool {
		properties[string(name)] = string(value)
		return true
	})
	m := map[string]any{
		"commitlog_offset": e.At, "size": v.TotalSize(), "topic": string(v.Topic()),
		"queue": v.QueueID(), "offset": v.QueueOffset(), "flag": v.Flag(), "system_flag": v.SysFlag(),
		"born_at": time.UnixMilli(v.BornMS()).UTC(), "stored_at": time.UnixMilli(v.StoreMS()).UTC(),
		"born_host": v.BornHost().String(), "store_host": v.StoreHost().String(),
		"reconsume_times": v.ReconsumeTimes(), "prepared_offset": v.PreparedOffset(),
		"properties": properties, "sound": e.Sound,
	}
	if body {
		if utf8.Valid(v.Body()) {
			m["body"] = string(v.Body())
		} else {
			m["body_base64"] = v.Body()
		}
	}
	return m
}
