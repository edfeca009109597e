// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/spf13/cobra"

	"github.com/skylarkmq/skylark/storage/consumequeue"
	"github.com/skylarkmq/skylark/storage/inspect"
	"github.com/skylarkmq/skylark/storage/record"
)

type queueRow struct {
	Topic    string             `json:"topic" col:"TOPIC"`
	Queue    int32              `json:"queue" col:"QUEUE"`
	First    record.QueueOffset `json:"first" col:"FIRST"`
	End      record.QueueOffset `json:"end" col:"END"`
	Messages int64              `json:"messages" col:"MESSAGES"`
	Files    int                `json:"files" col:"FILES"`
}

type unitRow struct {
	Offset record.QueueOffset    `json:"queue_offset" col:"OFFSET"`
	At     record.PhysicalOffset `json:"commitlog_offset" col:"COMMITLOG"`
	Size   int32                 `json:"size" col:"SIZE"`
	Tags   int64                 `json:"tags_code" col:"TAGS CODE"`
}

func (a *app) inspectQueueCommand() *cobra.Command {
	var topic string
	var queue int32
	var from int64
	var count int
	cmd := a.inspectLeaf("queue", "List the queues, or the entries of one",
		func(_ context.Context, d *inspect.Dir) error {
			if queue >= 0 && topic == "" {
				return misuse{errors.New("--queue needs --topic")}
			}
			list, err := d.Queues(topic)
			if err != nil {
				return err
			}
			if queue < 0 {
				rows := make([]queueRow, len(list))
				for i, q := range list {
					rows[i] = queueRow{q.Topic, q.ID, q.First, q.End, int64(q.End - q.First), q.Files}
				}
				return printRows(a, rows)
			}
			for _, q := range list {
				if q.ID == queue {
					return a.printUnits(&q, record.QueueOffset(from), count)
				}
			}
			return fmt.Errorf("topic %s has no queue %d here; `skylark inspect queue DIR` lists all",
				topic, queue)
		})
	flags := cmd.Flags()
	flags.StringVar(&topic, "topic", "", "only this topic")
	flags.Int32Var(&queue, "queue", -1, "print the entries of this queue")
	flags.Int64Var(&from, "from", 0, "first queue offset to print")
	flags.IntVar(&count, "count", 100, "entries to print at most")
	return cmd
}

func (a *app) printUnits(q *inspect.Queue, from record.QueueOffset, count int) error {
	var rows []unitRow
	err := q.Units(from, func(at record.QueueOffset, u consumequeue.Unit) error {
		if len(rows) >= count {
			return inspect.ErrStop
		}
		if !u.Filler() {
			rows = append(rows, unitRow{at, u.At, u.Size, u.TagsCode})
		}
		return nil
	})
	return errors.Join(printRows(a, rows), err)
}

type indexRow struct {
	Name    string                `json:"name" col:"FILE"`
	Entries int32                 `json:"entries" col:"ENTRIES"`
	Slots   int32                 `json:"slots_used" col:"SLOTS"`
	BeginAt record.PhysicalOffset `json:"begin_offset" col:"FROM"`
	EndAt   record.PhysicalOffset `json:"end_offset" col:"TO"`
	Begin   time.Time             `json:"begin" col:"OLDEST"`
	End     time.Time             `json:"end" col:"NEWEST"`
	Size    int64                 `json:"size" col:"BYTES"`
}

func (a *app) inspectIndexCommand() *cobra.Command {
	return a.inspectLeaf("index", "List the index files",
		func(_ context.Context, d *inspect.Dir) error {
			list, err := d.IndexFiles()
			if err != nil {
				return err
			}
			rows := make([]indexRow, len(list))
			for i, f := range list {
				rows[i] = indexRow{
					f.Name, f.Count - 1, f.SlotsUsed, f.BeginAt, f.EndAt, f.Begin, f.End, f.Size,
				}
			}
			return printRows(a, rows)
		})
}

func (a *app) inspectCheckpointCommand() *cobra.Command {
	return a.inspectLeaf("checkpoint", "Show up to where the files are known to be on disk",
		func(_ context.Context, d *inspect.Dir) error {
			c, err := d.Checkpoint()
			missing := errors.Is(err, fs.ErrNotExist)
			if err != nil && !missing {
				return err
			}
			if a.json {
				return a.printJSON(map[string]any{
					"exists": !missing, "log_time_ms": c.PhysicMS, "queues_time_ms": c.LogicsMS,
					"index_time_ms": c.IndexMS, "queues_offset": c.LogicsAt,
					"master_flushed_offset": c.MasterFlushed, "confirm_offset": c.Confirm,
					"open": c.Abort, "open_pid": c.Opener,
				})
			}
			if missing {
				_, err = fmt.Fprintln(a.stdout, "there is no checkpoint: the next start reads the whole log")
			} else {
				_, err = fmt.Fprintf(a.stdout, "log on disk up to     %s\nqueues on disk up to  %s, offset %d\n"+
					"index on disk up to   %s\n", pointInTime(c.PhysicMS), pointInTime(c.LogicsMS), c.LogicsAt,
					pointInTime(c.IndexMS))
			}
			if err == nil && c.Abort {
				_, err = fmt.Fprintf(a.stdout,
					"the store is open, or was not closed (file abort, process %d)\n", c.Opener)
			}
			return err
		})
}

func pointInTime(ms int64) string {
	if ms <= 0 {
		return "not known"
	}
	return time.UnixMilli(ms).Format("2006-01-02 15:04:05.000")
}

type configRow struct {
	Name     string    `json:"name" col:"FILE"`
	Size     int64     `json:"size" col:"BYTES"`
	Modified time.Time `json:"modified" col:"WRITTEN"`
	State    string    `json:"state" col:"STATE"`
}

func (a *app) inspectConfigCommand() *cobra.Command {
	var show string
	cmd := a.inspectLeaf("config", "List the JSON files of topics, groups and offsets, and check them",
		func(_ context.Context, d *inspect.Dir) error {
			list, err := d.ConfigFiles()
			if err != nil {
				return err
			}
			rows, faults := make([]configRow, len(list)), 0
			for i, c := range list {
				if c.Name == show {
					_, err := a.stdout.Write(c.Text)
					return err
				}
				rows[i] = configRow{c.Name, c.Size, c.Modified, "sound"}
				if c.Fault != "" {
					rows[i].State = c.Fault
					faults++
				}
			}
			if show != "" {
				return fmt.Errorf("there is no file %s in %s/config", show, d.Root())
			}
			if err := printRows(a, rows); err != nil {
				return err
			}
			if faults > 0 {
				return fmt.Errorf("%d of %d files cannot be read", faults, len(list))
			}
			return nil
		})
	cmd.Flags().StringVar(&show, "show", "", "print this file as it is")
	return cmd
}
