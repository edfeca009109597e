// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/skylarkmq/skylark/client/admin"
	"github.com/skylarkmq/skylark/perf/live"
)

// deadCommands are beyond mqadmin, which has no command for dead letters.
func (a *app) deadCommands(f *adminFlags) []*cobra.Command {
	return []*cobra.Command{
		a.listDeadLettersCommand(f), a.exportDeadLettersCommand(f), a.resendDeadLettersCommand(f),
	}
}

// letterFlags choose dead letters.
type letterFlags struct {
	group, key, tag, topic, id, from, to string
	least, most, limit                   int
}

func (l *letterFlags) flags(cmd *cobra.Command, limit int) {
	fl := cmd.Flags()
	fl.StringVarP(&l.group, "consumerGroup", "g", "", "consumer group (required)")
	fl.StringVarP(&l.key, "msgKey", "k", "", "with this key")
	fl.StringVar(&l.tag, "tag", "", "with this tag")
	fl.StringVarP(&l.topic, "topic", "t", "", "first sent to this topic")
	fl.StringVarP(&l.id, "msgId", "i", "", "with this unique id, or offset id of the first message")
	fl.StringVarP(&l.from, "beginTimestamp", "b", "",
		"dead since that moment or later: milliseconds, or as 2026-01-31T12:00:00Z")
	fl.StringVarP(&l.to, "endTimestamp", "e", "", "dead before that moment")
	fl.IntVar(&l.least, "minReconsumeTimes", 0, "consumed in vain so often at least")
	fl.IntVar(&l.most, "maxReconsumeTimes", 0, "consumed in vain so often at most; 0: any number")
	fl.IntVar(&l.limit, "limit", limit, "letters at most; 0: all")
}

func (l *letterFlags) query() (admin.DeadLetterQuery, error) {
	q := admin.DeadLetterQuery{
		Group: l.group, Key: l.key, Tag: l.tag, Topic: l.topic, OriginID: l.id,
		MinReconsumeTimes: l.least, MaxReconsumeTimes: l.most, Limit: l.limit,
	}
	var errs [2]error
	q.From, errs[0] = momentOrDate("beginTimestamp", l.from)
	q.To, errs[1] = momentOrDate("endTimestamp", l.to)
	return q, errors.Join(errs[:]...)
}

// momentOrDate reads milliseconds, as mqadmin has them, or a time as people write it.
func momentOrDate(name, text string) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	t, err := moment(name, text)
	if err != nil {
		return t, misuse{fmt.Errorf("--%s is %q, want milliseconds or a time as 2026-01-31T12:00:00Z",
			name, text)}
	}
	return t, nil
}

// letterRow is a line of listDeadLetters.
type letterRow struct {
	Dead   time.Time `json:"dead_at" col:"#Dead since"`
	ID     string    `json:"id" col:"#Message ID"`
	Topic  string    `json:"origin_topic" col:"#Topic"`
	Tag    string    `json:"tag" col:"#Tag"`
	Keys   []string  `json:"keys" col:"#Keys"`
	Times  int       `json:"reconsume_times" col:"#Times"`
	Size   int       `json:"body_size" col:"#Bytes"`
	Broker string    `json:"broker"`
	Queue  int       `json:"queue"`
	Offset int64     `json:"offset" col:"#Offset"`
	Letter string    `json:"offset_id"`
	Origin string    `json:"origin_id" col:"#Origin"`
}

func letterRowOf(l *admin.DeadLetter) letterRow {
	return letterRow{
		l.StoredAt, l.ID, l.OriginTopic, l.Tag, l.Keys, l.ReconsumeTimes, len(l.Body), l.Source.Broker,
		l.Source.ID, l.Offset, l.OffsetID, l.OriginID,
	}
}

func (a *app) listDeadLettersCommand(f *adminFlags) *cobra.Command {
	var l letterFlags
	cmd := a.adminLeaf(f, "listDeadLetters", "List the dead letters of a consumer group",
		func(ctx context.Context, ad *admin.Admin) error {
			q, err := l.query()
			if err != nil {
				return err
			}
			var rows []letterRow
			var failed []error
			for letter, err := range ad.DeadLetters(ctx, q) {
				if err != nil {
					failed = append(failed, err)
					continue
				}
				rows = append(rows, letterRowOf(&letter))
			}
			if len(rows) == 0 && len(failed) > 0 {
				return errors.Join(failed...)
			}
			if err := printRows(a, rows); err != nil {
				return err
			}
			if l.limit > 0 && len(rows) == l.limit {
				_, _ = fmt.Fprintf(a.stderr, "skylark: there may be more: --limit is %d\n", l.limit)
			}
			return a.partly(errors.Join(failed...))
		})
	l.flags(cmd, 1000)
	return need(cmd, "consumerGroup")
}

// letterJSON is a dead letter with all that there is of it.
func letterJSON(l *admin.DeadLetter) map[string]any {
	v := messageJSON(l.Message)
	v["origin_topic"], v["origin_id"] = l.OriginTopic, l.OriginID
	v["reconsume_times"], v["dead_at"] = l.ReconsumeTimes, l.StoredAt
	return v
}

func (a *app) exportDeadLettersCommand(f *adminFlags) *cobra.Command {
	var l letterFlags
	var file string
	cmd := a.adminLeaf(f, "exportDeadLetters",
		"Write the dead letters of a consumer group, a JSON object a line",
		func(ctx context.Context, ad *admin.Admin) error {
			q, err := l.query()
			if err != nil {
				return err
			}
			return a.exportLetters(ctx, ad, q, file)
		})
	l.flags(cmd, 0)
	cmd.Flags().StringVarP(&file, "output", "o", "",
		"file to make, which must not exist; default the standard output")
	return need(cmd, "consumerGroup")
}

func (a *app) exportLetters(
	ctx context.Context, ad *admin.Admin, q admin.DeadLetterQuery, path string,
) (err error) {
	to := a.stdout
	if path != "" {
		file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return misuse{fmt.Errorf("--output: %w", err)}
		}
		defer func() { err = errors.Join(err, file.Sync(), file.Close()) }()
		to = file
	}
	n, err := writeLetters(ctx, ad, q, to)
	if path != "" && err == nil {
		_, err = fmt.Fprintf(a.stderr, "%d letters are in %s\n", n, path)
	}
	return err
}

func writeLetters(
	ctx context.Context, ad *admin.Admin, q admin.DeadLetterQuery, to io.Writer,
) (n int, err error) {
	out := bufio.NewWriter(to)
	lines := json.NewEncoder(out)
	lines.SetEscapeHTML(false)
	var failed []error
	for letter, err := range ad.DeadLetters(ctx, q) {
		if err != nil {
			failed = append(failed, err)
			continue
		}
		if err := lines.Encode(letterJSON(&letter)); err != nil {
			return n, err
		}
		n++
	}
	return n, errors.Join(append(failed, out.Flush())...)
}

func (a *app) resendDeadLettersCommand(f *adminFlags) *cobra.Command {
	var l letterFlags
	r := admin.Resend{}
	cmd := a.adminLeaf(f, "resendDeadLetters", "Send the dead letters of a consumer group again",
		func(ctx context.Context, ad *admin.Admin) (err error) {
			if r.Letters, err = l.query(); err != nil {
				return err
			}
			return a.resendLetters(ctx, ad, r)
		})
	cmd.Long = "Sends dead letters again: to the topic they were first sent to, where every group of " +
		"it gets them, or with\n--toRetryTopic to this group only. Keys, tags, ids and properties stay; " +
		"the count of tries begins anew.\n\nAt least once: the letters stay where they are, and --state " +
		"keeps how far the command came. After a crash, an\nerror or Ctrl-C the same command goes on " +
		"there, with up to 32 letters sent twice after a crash; later it\nsends what has come since. " +
		"Letters that die again meanwhile are not met twice in one run."
	cmd.Example = "  skylark admin resendDeadLetters -g billing --dry-run\n" +
		"  skylark admin resendDeadLetters -g billing --state billing.resend\n" +
		"  skylark admin resendDeadLetters -g billing -t orders -b 2026-01-31T12:00:00Z --limit 10"
	l.flags(cmd, 0)
	fl := cmd.Flags()
	fl.BoolVar(&r.ToRetry, "toRetryTopic", false,
		"to this group's retry topic; not for groups that consume in order")
	fl.BoolVar(&r.DryRun, "dry-run", false, "send nothing, only say what would be sent")
	fl.StringVar(&r.StateFile, "state", "",
		"file that keeps how far it came; without one each run begins with the first letter")
	fl.BoolVar(&r.SkipRefused, "skip-refused", false,
		"pass over letters that a broker refuses, and name them; otherwise the first one ends the run")
	return need(cmd, "consumerGroup")
}

func (a *app) resendLetters(ctx context.Context, ad *admin.Admin, r admin.Resend) error {
	var failed error // of printing
	r.OnRefused = func(l admin.DeadLetter, err error) {
		_, _ = fmt.Fprintf(a.stderr, "skylark: letter %s (%s) is refused: %v\n", l.OffsetID, l.ID, err)
	}
	var bar *live.Bar
	switch {
	case a.json:
		r.OnLetter = func(l admin.DeadLetter) {
			failed = errors.Join(failed, a.printJSON(letterRowOf(&l)))
		}
	case r.DryRun:
		r.OnLetter = func(l admin.DeadLetter) { failed = errors.Join(failed, a.wouldSend(&l, r.ToRetry)) }
	default:
		if bar = a.bar("resending"); bar != nil {
			r.OnProgress = func(p admin.ResendProgress) {
				bar.Show(p.Seen, p.Total, fmt.Sprintf("%d sent, %d refused", p.Resent, p.Refused))
			}
		}
	}
	p, err := ad.ResendDeadLetters(ctx, r)
	if bar != nil {
		bar.Close()
	}
	if p == (admin.ResendProgress{}) && err != nil {
		return err
	}
	if perr := a.printResent(r, p); perr != nil {
		return errors.Join(err, perr, failed)
	}
	if err == nil && p.Refused > 0 {
		return errReported
	}
	return errors.Join(err, failed)
}

// bar is a progress bar on the terminal; nil when there is none.
func (a *app) bar(name string) *live.Bar {
	f, ok := a.stderr.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return nil
	}
	return live.NewBar(f, name)
}

func (a *app) wouldSend(l *admin.DeadLetter, toRetry bool) error {
	topic := l.OriginTopic
	if toRetry {
		topic = "the retry topic"
	}
	body := fmt.Sprintf("%q", l.Body)
	if utf8.Valid(l.Body) {
		body = string(l.Body)
	}
	_, err := fmt.Fprintf(a.stdout, "%s to %s %.80s\n", l.ID, topic, body)
	return err
}

func (a *app) printResent(r admin.Resend, p admin.ResendProgress) error {
	if a.json {
		return a.printJSON(map[string]any{
			"seen": p.Seen, "total": p.Total, "resent": p.Resent, "refused": p.Refused,
			"behind": p.Behind, "dry_run": r.DryRun,
		})
	}
	did := "sent again"
	if r.DryRun {
		did = "would be sent again"
	}
	_, err := fmt.Fprintf(a.stdout, "%d of %d letters %s, %d refused",
		p.Resent, p.Total, did, p.Refused)
	if err == nil && p.Behind > 0 {
		_, err = fmt.Fprintf(a.stdout, ", %d looked at by earlier runs", p.Behind)
	}
	if err == nil {
		_, err = fmt.Fprintln(a.stdout)
	}
	return err
}
