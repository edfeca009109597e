// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/skylarkmq/skylark/client"
)

type receiveFlags struct {
	nameServers, topic, group, from string
	tags                            []string
	count                           int
	timeout                         time.Duration
}

func (a *app) receiveCommand() *cobra.Command {
	var f receiveFlags
	cmd := &cobra.Command{
		Use:   "receive",
		Short: "Print the messages of a topic as they come",
		Long: "Prints the messages of all queues of a topic until it is interrupted, --count messages " +
			"were printed,\nor none came for --timeout.\n\nWithout --group nothing is stored at the " +
			"brokers: each call begins at --from. With --group it begins\nwhere the group stopped, and " +
			"--from counts only the first time; it reads all queues itself and does not\nshare them with " +
			"other members of the group.",
		Example: "  skylark receive --topic demo --from first\n" +
			"  skylark receive --topic demo --from 2026-01-31T12:00:00Z --count 10 --json",
		Args: a.noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.receive(cmd.Context(), &f) },
	}
	a.nameServerFlag(cmd, &f.nameServers)
	fl := cmd.Flags()
	fl.StringVarP(&f.topic, "topic", "t", "", "topic (required)")
	fl.StringVar(&f.from, "from", "last",
		"where to begin: first, last or a time as 2026-01-31T12:00:00Z")
	fl.StringVarP(&f.group, "group", "g", "",
		"consumer group that stores the position; none by default")
	fl.StringSliceVar(&f.tags, "tag", nil, "print only messages with one of these tags")
	fl.IntVar(&f.count, "count", 0, "stop after that many messages; 0: go on")
	fl.DurationVar(&f.timeout, "timeout", 0, "stop when no message came for so long, as 5s; 0: never")
	return cmd
}

func (f *receiveFlags) start() (client.Start, error) {
	switch f.from {
	case "first":
		return client.Earliest, nil
	case "last":
		return client.Latest, nil
	}
	t, err := time.Parse(time.RFC3339, f.from)
	if err != nil {
		return 0, misuse{fmt.Errorf("--from is %q, want first, last or a time as "+
			"2026-01-31T12:00:00Z", f.from)}
	}
	return client.At(t), nil
}

func (a *app) receive(ctx context.Context, f *receiveFlags) error {
	if err := required("topic", f.topic); err != nil {
		return err
	}
	start, err := f.start()
	if err != nil {
		return err
	}
	if f.count < 0 || f.timeout < 0 {
		return misuse{errors.New("--count and --timeout are not negative")}
	}
	c, err := newClient(f.nameServers)
	if err != nil {
		return misuse{err}
	}
	defer closeClient(c)
	if err := c.Ping(ctx); err != nil {
		return advise(err, f.nameServers)
	}
	if _, err := c.Queues(ctx, f.topic); errors.Is(err, client.ErrNoRoute) {
		a.waitingFor(f.topic)
	}
	r, err := c.NewReader(f.group, client.WithStart(start),
		client.WithSubscription(f.topic, client.Tags(f.tags...)))
	if err != nil {
		return misuse{err}
	}
	return a.printMessages(ctx, r, f)
}

// waitingFor says why nothing comes.
func (a *app) waitingFor(topic string) {
	_, _ = fmt.Fprintf(a.stderr, "skylark: there is no topic %s yet: waiting for it\n", topic)
}

// printMessages polls until one of the ends is reached. Being interrupted is a good end.
func (a *app) printMessages(ctx context.Context, r *client.Reader, f *receiveFlags) error {
	for printed := 0; f.count == 0 || printed < f.count; {
		want := 32
		if f.count > 0 {
			want = min(want, f.count-printed)
		}
		ms, err := a.poll(ctx, r, want, f.timeout)
		var bad *client.DecodeError
		switch {
		case ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded):
			if printed < f.count {
				_, _ = fmt.Fprintf(a.stderr, "skylark: %d of %d messages came\n", printed, f.count)
				return errReported
			}
			return nil
		case errors.As(err, &bad):
			_, _ = fmt.Fprintf(a.stderr, "skylark: %v\n", err)
			continue
		case err != nil:
			return err
		}
		for _, m := range ms {
			if err := a.printMessage(m); err != nil {
				return err
			}
		}
		printed += len(ms)
	}
	// What was printed is done: say so before the reader is closed.
	if f.group != "" {
		done, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Millisecond)
		defer cancel()
		_, _ = r.Poll(done, 1)
	}
	return nil
}

func (a *app) poll(
	ctx context.Context, r *client.Reader, n int, timeout time.Duration,
) ([]*client.Received, error) {
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	return r.Poll(ctx, n)
}

func (a *app) printMessage(m *client.Received) error {
	if a.json {
		return a.printJSON(receivedJSON(m))
	}
	_, err := fmt.Fprintf(a.stdout, "%s queue=%d offset=%d id=%s",
		m.StoredAt.Format("2006-01-02T15:04:05.000Z07:00"), m.Source.ID, m.Offset, m.ID)
	if err == nil && m.Tag != "" {
		_, err = fmt.Fprintf(a.stdout, " tag=%s", m.Tag)
	}
	if err == nil && len(m.Keys) > 0 {
		_, err = fmt.Fprintf(a.stdout, " keys=%v", m.Keys)
	}
	if err == nil && utf8.Valid(m.Body) {
		_, err = fmt.Fprintf(a.stdout, " %s\n", m.Body)
	} else if err == nil {
		_, err = fmt.Fprintf(a.stdout, " %q\n", m.Body)
	}
	return err
}

// receivedJSON gives text bodies as text and others in base64.
func receivedJSON(m *client.Received) map[string]any {
	v := map[string]any{
		"topic": m.Topic, "broker": m.Source.Broker, "queue": m.Source.ID, "offset": m.Offset,
		"id": m.ID, "offset_id": m.OffsetID, "tag": m.Tag, "keys": m.Keys,
		"properties": m.Properties, "attempt": m.Attempt, "born_host": m.BornHost,
		"store_host": m.StoreHost, "born_at": m.BornAt, "stored_at": m.StoredAt,
	}
	if utf8.Valid(m.Body) {
		v["body"] = string(m.Body)
	} else {
		v["body_base64"] = m.Body
	}
	return v
}
