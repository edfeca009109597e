// SPDX-License-Identifier: Apache-2.0

//go:build interop

package interop

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/client/admin"
)

// A Java consumer gives messages up; they are resent in bulk, to their topic and to the retry topic,
// and the repaired consumer gets them as it would have the first time. At our broker and at Apache's.
func TestResendJavaDeadLetters(t *testing.T) {
	t.Parallel()
	for kind, at := range map[string]target{
		"ours": fresh(t, shortLevels), "apache": startApache(t, scratch(t), shortLevels),
	} {
		for _, toRetry := range []bool{false, true} {
			way := map[bool]string{false: "topic", true: "retry"}[toRetry]
			t.Run("broker="+kind+"/to="+way, func(t *testing.T) {
				t.Parallel()
				resendJavaDeadLetters(t, at, toRetry)
			})
		}
	}
}

func resendJavaDeadLetters(t *testing.T, at target, toRetry bool) {
	const letters = 5
	jvm := java(t)
	topic, group := name(t, "T"), name(t, "CG")
	createTopic(t, at, topic, 2)
	first := must[[]sent](t, jvm, "producer.many", args{
		"handle": producer(t, jvm, at, nil), "topic": topic, "prefix": "m", "count": letters,
	})
	broken := open(t, jvm, "push", args{
		"namesrv": at.NameServer, "group": group, "topic": topic, "failures": 99, "maxReconsume": 1,
	})
	before := awaitPush(t, jvm, broken, 2*letters, 60_000)
	dead := "%DLQ%" + group
	waitForRoute(t, at.NameServer, dead)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c, err := client.New([]string{at.NameServer})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(ctx)
	a := admin.New(c)
	r := admin.Resend{Letters: admin.DeadLetterQuery{Group: group, Topic: topic}, ToRetry: toRetry}
	eventually(t, 30*time.Second, func() error {
		dry := r
		dry.DryRun = true
		p, err := a.ResendDeadLetters(ctx, dry)
		if err == nil && p.Resent != letters {
			err = fmt.Errorf("%d letters: %+v", letters, p)
		}
		return err
	})
	run(t, jvm, "push.stop", args{"handle": broken})

	if p, err := a.ResendDeadLetters(ctx, r); err != nil || p.Resent != letters || p.Refused != 0 {
		t.Fatalf("resent %+v: %v", p, err)
	}
	repaired := open(t, jvm, "push", args{
		"namesrv": at.NameServer, "group": group, "topic": topic, "instance": name(t, "R"),
	})
	got := awaitPush(t, jvm, repaired, letters, 60_000)
	if err := sameSet(bodies(got), numbered("m", letters)); err != nil {
		t.Fatal(err)
	}
	for _, m := range got {
		i := slices.IndexFunc(first, func(s sent) bool { return s.MsgID == m.MsgID })
		j := slices.IndexFunc(before, func(b received) bool { return b.MsgID == m.MsgID })
		if i < 0 || j < 0 {
			t.Errorf("message %+v has the id of none", m)
			continue
		}
		if m.Topic != topic || m.ReconsumeTimes != 0 || m.BornTimestamp != before[j].BornTimestamp ||
			m.Properties["ORIGIN_MESSAGE_ID"] != first[i].OffsetMsgID {
			t.Errorf("message %+v, was %+v", m, before[j])
		}
		plain := func(r received) []any { return []any{r.Body, r.Tags, r.Keys, r.Flag} }
		if diff := cmp.Diff(plain(before[j]), plain(m)); diff != "" {
			t.Errorf("resent, it is another one:\n%s", diff)
		}
	}
	if more := awaitPush(t, jvm, repaired, letters+1, 1500); len(more) != letters {
		t.Errorf("%d messages, want each of %d once", len(more), letters)
	}
}
