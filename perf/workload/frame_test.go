// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/perf/measure"
	"github.com/skylarkmq/skylark/storage/record"
)

const testPrefix = "0123456789ABCDEF0123"

// TestFrames: a patched frame decodes to the message it should be, in both header forms, single and
// in batches, with every option.
func TestFrames(t *testing.T) {
	t.Parallel()
	for _, binaryForm := range []bool{false, true} {
		for _, batch := range []int{1, 3} {
			for _, verify := range []bool{false, true} {
				name := fmt.Sprintf("binary=%v/batch=%d/verify=%v", binaryForm, batch, verify)
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					checkFrames(t, binaryForm, batch, verify)
				})
			}
		}
	}
}

func checkFrames(t *testing.T, binaryForm bool, batch int, verify bool) {
	cfg := DefaultProduce()
	cfg.Topic, cfg.Size, cfg.Batch, cfg.Binary = "load", 100, batch, binaryForm
	cfg.Keys, cfg.Tags, cfg.PropertySize = true, 2, 50
	m := &frameMaker{cfg: &cfg, prefix: testPrefix}
	bodies, err := makeBodies(&cfg)
	if err != nil {
		t.Fatal(err)
	}
	body := m.payloads(bodies)[0]
	tag := 1
	if batch > 1 {
		tag = -1
	}
	tpl := m.head(0, &target{topic: "load", broker: "b", queue: 7}, tag)
	var buf []byte
	for n := range uint64(3) {
		p := patch{opaque: opaqueBase + int32(n)*77, id: 0xABC000 + n*16}
		putDecimal(p.bornMS[:], 1_700_000_000_000+int64(n))
		if verify {
			p.stamp = &measure.Stamp{Run: 5, Stream: 6, Number: n * uint64(batch), Floor: n}
		}
		buf = appendFrame(buf[:0], &tpl, &body, &p)
		checkFrame(t, buf, n, &cfg, verify)
	}
}

func checkFrame(t *testing.T, frame []byte, n uint64, cfg *Produce, verify bool) {
	t.Helper()
	total, err := remoting.FrameSize(frame, remoting.MaxFrame)
	if err != nil || total != len(frame) {
		t.Fatalf("frame of %d bytes says %d: %v", len(frame), total, err)
	}
	var cmd remoting.Command
	if err := cmd.Decode(frame[4:]); err != nil {
		t.Fatal(err)
	}
	if (cmd.Serialize == remoting.Binary) != cfg.Binary || cmd.Opaque != remoting.Opaque(opaqueBase+n*77) {
		t.Errorf("form %v opaque %d", cmd.Serialize, cmd.Opaque)
	}
	var h protocol.SendRequest
	if err := h.Decode(&cmd); err != nil {
		t.Fatal(err)
	}
	if string(h.Topic) != "load" || h.QueueID != 7 || h.BornMS != 1_700_000_000_000+int64(n) ||
		h.Batch != (cfg.Batch > 1) || string(h.DefaultTopic) != "TBW102" || h.MaxReconsumeTimes != -1 {
		t.Errorf("header: %+v", h)
	}
	c := measure.NewChecker(false)
	one := func(i uint64, body, props []byte) {
		t.Helper()
		id := fmt.Sprintf("%s%012X", testPrefix, 0xABC000+n*16+i)
		if v, _ := record.Property(props, "UNIQ_KEY"); string(v) != id {
			t.Errorf("message %d: id %s, want %s", i, v, id)
		}
		if v, _ := record.Property(props, "KEYS"); !strings.HasSuffix(string(v), id[20:]) {
			t.Errorf("message %d: key %s, want it to end as %s", i, v, id)
		}
		if v, _ := record.Property(props, "TAGS"); len(v) == 0 {
			t.Errorf("message %d has no tag", i)
		}
		if len(body) != cfg.Size {
			t.Errorf("message %d: body of %d bytes", i, len(body))
		}
		c.Body(measure.Place{}, body, true)
	}
	if cfg.Batch == 1 {
		one(0, cmd.Body, h.Properties)
	} else {
		r := record.NewBatchReader(cmd.Body)
		for i := uint64(0); ; i++ {
			_, body, props, ok := r.Next()
			if !ok {
				if r.Err() != nil || i != uint64(cfg.Batch) {
					t.Errorf("batch ends after %d: %v", i, r.Err())
				}
				break
			}
			one(i, body, props)
		}
	}
	f := c.Faults()
	if verify && (f.Messages != int64(cfg.Batch) || f.Changed != 0 || f.Lost != 0) {
		t.Errorf("numbered bodies: %+v", f)
	}
	if !verify && f.Foreign != int64(cfg.Batch) {
		t.Errorf("plain bodies: %+v", f)
	}
}

func TestAllocsFrame(t *testing.T) {
	cfg := DefaultProduce()
	cfg.Size, cfg.Keys = 1024, true
	m := &frameMaker{cfg: &cfg, prefix: testPrefix}
	bodies, err := makeBodies(&cfg)
	if err != nil {
		t.Fatal(err)
	}
	body := m.payloads(bodies)[0]
	tpl := m.head(0, &target{topic: "t", broker: "b"}, -1)
	buf := make([]byte, 0, 4096)
	stamp := measure.Stamp{}
	got := testing.AllocsPerRun(100, func() {
		p := patch{opaque: opaqueBase, stamp: &stamp}
		buf = appendFrame(buf[:0], &tpl, &body, &p)
	})
	if got != 0 {
		t.Errorf("allocations for a frame: got %v, want 0", got)
	}
}

// TestScanAnswer holds the fast scan to the full decoder.
func TestScanAnswer(t *testing.T) {
	t.Parallel()
	for _, form := range []remoting.SerializeType{remoting.JSON, remoting.Binary} {
		for _, code := range []remoting.ResponseCode{remoting.Success, remoting.SystemBusy, remoting.FlowControl, -5} {
			for _, remark := range []string{"", `a "code":7,"opaque":8, trap`, "\x01\x02"} {
				e := remoting.Begin(nil, remoting.Head{
					Code: int32(code), Flag: remoting.FlagResponse, Version: 513,
					Opaque: remoting.Opaque(opaqueBase + rand.Int32N(1000)), Serialize: form,
				})
				e.Remark(remark)
				e.String("msgId", `x"opaque":5`)
				e.Int("queueOffset", 12)
				frame := e.End(nil)[4:]
				var cmd remoting.Command
				if err := cmd.Decode(frame); err != nil {
					t.Fatal(err)
				}
				got, err := answerOf(frame, new(remoting.Command))
				if err != nil || got.code != cmd.Code || got.opaque != int32(cmd.Opaque) {
					t.Errorf("%v code %d remark %q: got %+v %v, want %d and %d",
						form, code, remark, got, err, cmd.Code, cmd.Opaque)
				}
				if _, ok := scanAnswer(frame); !ok && code >= 0 {
					t.Errorf("%v code %d remark %q: the fast scan gave up", form, code, remark)
				}
				for cut := range frame {
					_, _ = answerOf(bytes.Clone(frame[:cut]), new(remoting.Command)) // must not panic
				}
			}
		}
	}
}

func TestFrameBuffer(t *testing.T) {
	t.Parallel()
	var stream []byte
	var want []string
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 200 {
		e := remoting.Begin(nil, remoting.NewRequest(remoting.PullMessage, remoting.Opaque(i)))
		frame := e.End(bytes.Repeat([]byte{byte(i)}, r.IntN(3000)))
		stream = append(stream, frame...)
		want = append(want, string(frame[4:]))
	}
	var f frameBuffer
	f.reset(64)
	in := &dribble{b: stream, r: r}
	at := 0
	for at < len(want) {
		if err := f.fill(in); err != nil {
			t.Fatal(err)
		}
		for {
			frame, err := f.next()
			if err != nil {
				t.Fatal(err)
			}
			if frame == nil {
				break
			}
			if string(frame) != want[at] {
				t.Fatalf("frame %d differs", at)
			}
			at++
		}
	}
}

// dribble reads a stream in pieces of random size.
type dribble struct {
	b []byte
	r *rand.Rand
}

func (d *dribble) Read(p []byte) (int, error) {
	n := copy(p, d.b[:min(len(d.b), 1+d.r.IntN(700))])
	d.b = d.b[n:]
	return n, nil
}

// TestAllocsSend: a request queued and its answer settled cost no allocation.
func TestAllocsSend(t *testing.T) {
	cfg := DefaultProduce()
	s := senderAlone(&cfg)
	var answer []byte
	got := testing.AllocsPerRun(1000, func() {
		at := s.place & uint32(len(s.slots)-1)
		s.queue(0, 0)
		s.out = s.out[:0]
		answer = appendSendAnswer(answer[:0], opaqueBase+int32(at))
		if err := s.settleLocked(answer[4:], 1000, true); err != nil {
			t.Fatal(err)
		}
	})
	if got != 0 || s.group.rec.Totals().Messages != 1001 {
		t.Errorf("allocations: %v, want 0; %d answered", got, s.group.rec.Totals().Messages)
	}
}
