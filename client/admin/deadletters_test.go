// SPDX-License-Identifier: Apache-2.0

package admin_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/client/admin"
	"github.com/skylarkmq/skylark/client/clienttest"
)

// deadLab is a cluster with dead letters of group g: d0, d1, ... of topic t, with tag even or odd,
// key and property n, compressed where they are long.
type deadLab struct {
	cluster *clienttest.Cluster
	c       *client.Client
	a       *admin.Admin
	sent    []client.SendResult
}

func newDeadLab(t *testing.T, count int, opts ...clienttest.Option) *deadLab {
	t.Helper()
	opts = append([]clienttest.Option{
		clienttest.WithTopic("t", 2), clienttest.WithTopic("other", 1), clienttest.WithGroups("g", "h"),
		clienttest.WithoutAutoCreate(),
	}, opts...)
	l := &deadLab{cluster: clienttest.Start(t, opts...)}
	l.c = l.cluster.Client(t)
	l.a = admin.New(l.c)
	p, err := l.c.NewProducer("p")
	if err != nil {
		t.Fatal(err)
	}
	for i := range count {
		m := &client.Message{
			Topic: "t", Tag: []string{"even", "odd"}[i%2], Keys: []string{fmt.Sprint("k", i), "all"},
			Body: fmt.Append(nil, "d", i), Properties: map[string]string{"n": fmt.Sprint(i)},
		}
		if i == 3 {
			m.Body = append(m.Body, strings.Repeat(" long", 4000)...)
		}
		if i == 4 {
			m.Topic = "other"
		}
		res, err := p.Send(within(t), m)
		if err != nil {
			t.Fatal(err)
		}
		l.sent = append(l.sent, res)
	}
	l.die(t, count, "t", "other")
	return l
}

// die has group g give up count messages of some topics.
func (l *deadLab) die(t *testing.T, count int, topics ...string) {
	t.Helper()
	opts := []client.ConsumerOption{client.WithStart(client.Earliest), client.WithConcurrency(1)}
	for _, topic := range topics {
		opts = append(opts, client.WithSubscription(topic, client.All()))
	}
	k, err := l.c.NewConsumer("g", opts...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(within(t))
	died := 0
	if err := k.Run(ctx, func(context.Context, *client.Received) error {
		if died++; died == count {
			stop()
		}
		return client.DeadLetter(errors.New("cannot be billed"))
	}); err != nil {
		t.Fatal(err)
	}
}

// letters returns the numbers of the letters that a query finds, sorted.
func (l *deadLab) letters(t *testing.T, q admin.DeadLetterQuery) []string {
	t.Helper()
	got := []string{}
	for letter, err := range l.a.DeadLetters(within(t), q) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, letter.Properties["n"])
	}
	slices.Sort(got)
	return got
}

// read polls a topic from its beginning until it has count messages.
func (l *deadLab) read(t *testing.T, topic string, count int) []*client.Received {
	t.Helper()
	r, err := l.c.NewReader("", client.WithSubscription(topic, client.All()),
		client.WithStart(client.Earliest))
	if err != nil {
		t.Fatal(err)
	}
	var got []*client.Received
	for len(got) < count {
		ms, err := r.Poll(within(t), count)
		if err != nil {
			t.Fatalf("%d of %d messages of %s: %v", len(got), count, topic, err)
		}
		got = append(got, ms...)
	}
	if err := r.Close(within(t)); err != nil {
		t.Fatal(err)
	}
	return got
}

func TestDeadLettersFiltered(t *testing.T) {
	t.Parallel()
	l := newDeadLab(t, 6)
	all := []admin.DeadLetter{}
	for letter, err := range l.a.DeadLetters(within(t), admin.DeadLetterQuery{Group: "g"}) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, letter)
	}
	if len(all) != 6 {
		t.Fatalf("%d letters", len(all))
	}
	first := all[0]
	i := slices.IndexFunc(l.sent, func(r client.SendResult) bool { return r.ID == first.ID })
	if i < 0 || first.OriginTopic != map[bool]string{true: "other", false: "t"}[i == 4] || first.OriginID != l.sent[i].OffsetID ||
		first.ReconsumeTimes != 1 || first.Source.Topic != "%DLQ%g" {
		t.Errorf("first letter %+v of %+v", first, l.sent)
	}
	for _, k := range []struct {
		name string
		q    admin.DeadLetterQuery
		want string
	}{
		{"none", admin.DeadLetterQuery{}, "0 1 2 3 4 5"},
		{"tag", admin.DeadLetterQuery{Tag: "odd"}, "1 3 5"},
		{"key", admin.DeadLetterQuery{Key: "k2"}, "2"},
		{"key of all", admin.DeadLetterQuery{Key: "all"}, "0 1 2 3 4 5"},
		{"topic", admin.DeadLetterQuery{Topic: "other"}, "4"},
		{"tag and topic", admin.DeadLetterQuery{Topic: "other", Tag: "odd"}, ""},
		{"origin", admin.DeadLetterQuery{OriginID: l.sent[5].OffsetID}, "5"},
		{"unique id", admin.DeadLetterQuery{OriginID: l.sent[5].ID}, "5"},
		{"times", admin.DeadLetterQuery{MinReconsumeTimes: 1, MaxReconsumeTimes: 1}, "0 1 2 3 4 5"},
		{"more times", admin.DeadLetterQuery{MinReconsumeTimes: 2}, ""},
		{"since the last", admin.DeadLetterQuery{From: all[5].StoredAt.Add(time.Millisecond)}, ""},
		{"until the last", admin.DeadLetterQuery{
			From: all[0].StoredAt, To: all[5].StoredAt.Add(time.Millisecond),
		}, "0 1 2 3 4 5"},
		{"before the first", admin.DeadLetterQuery{To: all[0].StoredAt}, ""},
	} {
		k.q.Group = "g"
		if got := strings.Join(l.letters(t, k.q), " "); got != k.want {
			t.Errorf("%s: letters %q, want %q", k.name, got, k.want)
		}
	}
	if n := len(l.letters(t, admin.DeadLetterQuery{Group: "g", Limit: 4})); n != 4 {
		t.Errorf("%d letters, limit 4", n)
	}
	for _, bad := range []admin.DeadLetterQuery{
		{},
		{Group: "g", Limit: -1},
		{Group: "g", MinReconsumeTimes: 3, MaxReconsumeTimes: 2},
		{Group: "g", From: time.Now(), To: time.Now().Add(-time.Hour)},
	} {
		for _, err := range l.a.DeadLetters(within(t), bad) {
			if !errors.Is(err, admin.ErrInvalid) {
				t.Errorf("%+v: %v", bad, err)
			}
		}
	}
	for _, err := range l.a.DeadLetters(within(t), admin.DeadLetterQuery{Group: "h"}) {
		if !errors.Is(err, admin.ErrNotFound) || !strings.Contains(err.Error(), "no dead letters") {
			t.Errorf("letters of a group without any: %v", err)
		}
	}
}

// What is resent is the message: body as it was stored, keys, tag, id, properties; and none of what
// made it a dead letter, so that it can die, or be consumed, like a new one.
func TestResendDeadLetters(t *testing.T) {
	t.Parallel()
	l := newDeadLab(t, 6)
	dry, err := l.a.ResendDeadLetters(within(t), admin.Resend{
		Letters: admin.DeadLetterQuery{Group: "g", Topic: "t"}, DryRun: true,
	})
	want := admin.ResendProgress{Total: 6, Seen: 6, Resent: 5}
	if diff := cmp.Diff(want, dry); err != nil || diff != "" {
		t.Fatalf("dry run: %v\n%s", err, diff)
	}
	done, err := l.a.ResendDeadLetters(within(t), admin.Resend{
		Letters: admin.DeadLetterQuery{Group: "g", Topic: "t"},
	})
	if diff := cmp.Diff(want, done); err != nil || diff != "" {
		t.Fatalf("resend: %v\n%s", err, diff)
	}
	got := l.read(t, "t", 10)[:10]
	byID := map[string][]*client.Received{}
	for _, m := range got {
		byID[m.ID] = append(byID[m.ID], m)
	}
	for i, r := range l.sent {
		if i == 4 {
			continue
		}
		ms := byID[r.ID]
		if len(ms) != 2 {
			t.Fatalf("%d messages with the id of message %d, want the first and the resent", len(ms), i)
		}
		old, again := ms[0], ms[1]
		if old.StoredAt.After(again.StoredAt) || old.OffsetID != r.OffsetID {
			old, again = again, old
		}
		if diff := cmp.Diff(old.Message, again.Message); diff != "" {
			t.Errorf("message %d changed:\n%s", i, diff)
		}
		if again.Attempt != 1 || !again.BornAt.Equal(old.BornAt) {
			t.Errorf("message %d: attempt %d, born %v and %v", i, again.Attempt, old.BornAt, again.BornAt)
		}
		stored, err := l.a.MessageByOffsetID(within(t), again.OffsetID)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"DELAY", "RETRY_TOPIC", "MAX_RECONSUME_TIMES", "WAIT"} {
			if v, ok := stored.All[name]; ok {
				t.Errorf("message %d still has %s=%s", i, name, v)
			}
		}
		if stored.All["ORIGIN_MESSAGE_ID"] != r.OffsetID {
			t.Errorf("message %d: its origin is %s", i, stored.All["ORIGIN_MESSAGE_ID"])
		}
		if (i == 3) != (stored.SysFlag&1 != 0) {
			t.Errorf("message %d: system flag %#x: the body is to be as compressed as it was",
				i, stored.SysFlag)
		}
	}
	l.die(t, 5, "t") // they die like new ones, and name the same origin
	again := l.letters(t, admin.DeadLetterQuery{Group: "g", OriginID: l.sent[0].OffsetID})
	if diff := cmp.Diff([]string{"0", "0"}, again); diff != "" {
		t.Errorf("letters of message 0:\n%s", diff)
	}
}

// Resent to the retry topic, the letters reach this group and no other, under their topic's name.
func TestResendToRetryTopic(t *testing.T) {
	t.Parallel()
	l := newDeadLab(t, 3)
	done, err := l.a.ResendDeadLetters(within(t), admin.Resend{
		Letters: admin.DeadLetterQuery{Group: "g"}, ToRetry: true,
	})
	if err != nil || done.Resent != 3 {
		t.Fatalf("%+v: %v", done, err)
	}
	k, err := l.c.NewConsumer("g", client.WithSubscription("t", client.All()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(within(t))
	got := make(chan string, 3)
	go func() {
		for range 3 {
			<-got
		}
		stop()
	}()
	err = k.Run(ctx, func(_ context.Context, m *client.Received) error {
		if m.Topic != "t" || m.Source.Topic != "%RETRY%g" {
			t.Errorf("message of topic %s in %s", m.Topic, m.Source)
		}
		got <- string(m.Body)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if status, err := l.a.TopicStatus(within(t), "t"); err != nil || depth(status) != 3 {
		t.Errorf("topic t has %+v: %v, want the 3 that were sent", status, err)
	}
}

func depth(s admin.TopicStatus) (n int64) {
	for _, q := range s.Queues {
		n += q.Max - q.Min
	}
	return n
}

// A resend with a state goes on where it stopped: after its limit, after an error, for new letters;
// and begins anew when the topic was.
func TestResendGoesOn(t *testing.T) {
	t.Parallel()
	l := newDeadLab(t, 40)
	state := filepath.Join(t.TempDir(), "g.resend")
	r := admin.Resend{Letters: admin.DeadLetterQuery{Group: "g", Limit: 5}, StateFile: state}
	step := func(what string, want admin.ResendProgress) {
		t.Helper()
		got, err := l.a.ResendDeadLetters(within(t), r)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Fatalf("%s: %v\n%s", what, err, diff)
		}
	}
	step("first", admin.ResendProgress{Total: 40, Seen: 5, Resent: 5})
	step("second", admin.ResendProgress{Total: 35, Seen: 5, Resent: 5, Behind: 5})
	r.Letters.Limit = 0

	if _, err := l.a.DeleteTopic(within(t), "other", ""); err != nil {
		t.Fatal(err)
	}
	stopped, err := l.a.ResendDeadLetters(within(t), admin.Resend{
		Letters: admin.DeadLetterQuery{Group: "g", Topic: "other"},
	})
	if !errors.Is(err, client.ErrNoRoute) || stopped.Resent != 0 {
		t.Errorf("resend to a topic that is gone: %+v, %v", stopped, err)
	}
	other := r
	other.Letters.Tag = "odd"
	if _, err := l.a.ResendDeadLetters(within(t), other); !errors.Is(err, admin.ErrInvalid) ||
		!strings.Contains(err.Error(), `tag "odd"`) {
		t.Errorf("the state of another resend: %v", err)
	}

	refused := ""
	r.SkipRefused, r.OnRefused = true, func(d admin.DeadLetter, err error) {
		refused += d.Properties["n"]
	}
	got, err := l.a.ResendDeadLetters(within(t), r)
	if err != nil || got.Seen != 30 || got.Resent+got.Refused != 30 || got.Behind != 10 {
		t.Errorf("the rest: %+v, %v", got, err)
	}
	if got.Refused == 1 && refused != "4" || got.Refused > 1 {
		t.Errorf("%d refused: %q", got.Refused, refused)
	}
	l.die(t, 39, "t") // all that were resent there
	again, err := l.a.ResendDeadLetters(within(t), admin.Resend{Letters: r.Letters, StateFile: state})
	if err != nil || again.Total != 39 || again.Behind != 40 {
		t.Errorf("letters that came since: %+v, %v", again, err)
	}

	if _, err := l.a.DeleteTopic(within(t), "%DLQ%g", ""); err != nil {
		t.Fatal(err)
	}
	l.die(t, int(again.Resent), "t")
	anew, err := l.a.ResendDeadLetters(within(t), admin.Resend{Letters: r.Letters, StateFile: state})
	if err != nil || anew.Behind != 0 || anew.Resent != again.Resent {
		t.Errorf("after the topic was made anew: %+v, %v", anew, err)
	}
	if err := os.WriteFile(state, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := l.a.ResendDeadLetters(within(t), r); err == nil || !strings.Contains(err.Error(), state) {
		t.Errorf("a torn state: %v", err)
	}
}

// A broker that dies in the middle ends the call; the next one resends every letter that is left.
func TestCrashBrokerWhileResending(t *testing.T) {
	t.Parallel()
	const letters = 60
	l := newDeadLab(t, letters)
	state := filepath.Join(t.TempDir(), "g.resend")
	r := admin.Resend{Letters: admin.DeadLetterQuery{Group: "g"}, StateFile: state}
	r.OnProgress = func(p admin.ResendProgress) {
		if p.Resent == 47 {
			if err := l.cluster.Broker(0).Kill(); err != nil {
				t.Error(err)
			}
		}
	}
	got, err := l.a.ResendDeadLetters(within(t), r)
	if err == nil || got.Resent != 47 {
		t.Fatalf("%+v: %v, want it to end after letter 47", got, err)
	}
	if err := l.cluster.Broker(0).Start(); err != nil {
		t.Fatal(err)
	}
	r.OnProgress = nil
	got, err = l.a.ResendDeadLetters(within(t), r)
	if err != nil || got.Behind != 47 || got.Resent != letters-47 {
		t.Fatalf("second run: %+v, %v", got, err)
	}
	count := map[string]int{}
	for _, m := range append(l.read(t, "t", 2*(letters-1)), l.read(t, "other", 2)...) {
		count[m.ID]++
	}
	for i, s := range l.sent {
		if count[s.ID] != 2 {
			t.Errorf("message %d is there %d times, want it and its resent one", i, count[s.ID])
		}
	}
}
