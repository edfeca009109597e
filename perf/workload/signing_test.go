// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"crypto/hmac"
	"crypto/sha1"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/skylarkmq/skylark/client/scripttest"
	"github.com/skylarkmq/skylark/net/remoting"
)

// signatures looks at what a server is asked and notes the requests by whether they are signed well.
type signatures struct {
	mu         sync.Mutex
	good, bad  map[remoting.RequestCode]int
	unlikeness string
}

// watch has a server's requests of some kinds looked at.
func (s *signatures) watch(server *scripttest.Server, codes ...remoting.RequestCode) {
	for _, code := range codes {
		answer := server.Handler(code)
		server.Handle(code, func(r *scripttest.Request) *scripttest.Reply {
			s.look(code, r)
			return answer(r)
		})
	}
}

// look signs a request as RocketMQ's AclUtils does: values by the order of names, then the body.
func (s *signatures) look(code remoting.RequestCode, r *scripttest.Request) {
	fields := map[string]string{}
	var names []string
	for _, f := range r.Fields {
		fields[string(f.Name)] = string(f.Value)
		names = append(names, string(f.Name))
	}
	slices.Sort(names)
	mac := hmac.New(sha1.New, []byte("secret"))
	for _, name := range names {
		if name != "Signature" {
			mac.Write([]byte(fields[name]))
		}
	}
	mac.Write(r.Body)
	want := base64.StdEncoding.EncodeToString(mac.Sum(nil))
	s.mu.Lock()
	defer s.mu.Unlock()
	if fields["Signature"] == want && fields["AccessKey"] == "me" {
		s.good[code]++
		return
	}
	s.bad[code]++
	s.unlikeness = fmt.Sprintf("%s: %q, want %q", code, fields["Signature"], want)
}

// TestSigned: with credentials every request is signed, whatever is patched into it, and without
// none is.
func TestSigned(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(p *Produce){
		"plain":    func(*Produce) {},
		"rich":     func(p *Produce) { p.Keys, p.Tags, p.PropertySize = true, 3, 50 },
		"batch":    func(p *Produce) { p.Batch, p.Keys = 4, true },
		"zstd":     func(p *Produce) { p.Compress, p.CompressOver, p.Sizes = "zstd", 100, "50-500" },
		"numbered": func(p *Produce) { p.Verify = true },
		"unsigned": func(p *Produce) { p.Credentials = nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := scripttest.NewCluster(t, 1)
			cluster.SetTopic("load", 4)
			seen := &signatures{good: map[remoting.RequestCode]int{}, bad: map[remoting.RequestCode]int{}}
			seen.watch(cluster.NameServer, remoting.GetRouteInfoByTopic)
			send := remoting.SendMessageV2
			seen.watch(cluster.Brokers[0].Server, send, remoting.SendBatchMessage, remoting.PullMessage,
				remoting.GetMaxOffset, remoting.GetMinOffset)
			p := DefaultProduce()
			p.NameServers, p.Topic, p.Count = []string{cluster.NameServer.Addr}, "load", 400
			p.Credentials = &Credentials{AccessKey: "me", SecretKey: "secret"}
			set(&p)
			if p.Batch > 1 {
				send = remoting.SendBatchMessage
			}
			if res := produce(t, p); !res.OK || res.Messages != 400 {
				t.Errorf("sent %+v", res)
			}
			c := DefaultConsume()
			c.NameServers, c.Topic, c.UntilEnd, c.Credentials = p.NameServers, "load", true, p.Credentials
			if res := consume(t, c); !res.OK || res.Messages < 400 {
				t.Errorf("received %+v", res)
			}
			wrong, right := seen.bad, seen.good
			if p.Credentials == nil {
				wrong, right = right, wrong
			}
			if len(wrong) > 0 {
				t.Errorf("%v are signed as they should not be: %s", wrong, seen.unlikeness)
			}
			for _, code := range []remoting.RequestCode{
				remoting.GetRouteInfoByTopic, send, remoting.PullMessage,
			} {
				if right[code] == 0 {
					t.Errorf("no request %s was seen", code)
				}
			}
		})
	}
	p := DefaultProduce()
	p.Credentials = &Credentials{AccessKey: "me"}
	if err := p.check(); err == nil || !strings.Contains(err.Error(), "secret key") {
		t.Errorf("without a secret key: %v", err)
	}
}
