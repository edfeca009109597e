// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/client/scripttest"
	"github.com/skylarkmq/skylark/net/remoting"
)

// spy implements every hook and notes what it hears.
type spy struct {
	mu    sync.Mutex
	heard []string
}

func (s *spy) note(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard = append(s.heard, what)
}

func (s *spy) count(what string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, h := range s.heard {
		if strings.HasPrefix(h, what) {
			n++
		}
	}
	return n
}

func (s *spy) OnConnect(addr string)             { s.note("connect " + addr) }
func (s *spy) OnDisconnect(addr string, _ error) { s.note("disconnect " + addr) }
func (s *spy) OnRequest(op, addr string, _ int, _ time.Duration, err error) {
	s.note("request " + op + " " + addr)
	if err != nil {
		s.note("failed " + op)
	}
	panic("a hook that panics harms nobody")
}

func TestHooks(t *testing.T) {
	t.Parallel()
	s := scripttest.NewCluster(t, 1)
	var h spy
	c, err := client.New([]string{s.NameServer.Addr}, client.WithHooks(&h))
	if err != nil {
		t.Fatal(err)
	}
	ctx := within(t)
	if err := c.Ping(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Queues(ctx, "absent"); !errors.Is(err, client.ErrNoRoute) {
		t.Errorf("absent topic: got %v", err)
	}
	if err := c.Close(ctx); err != nil {
		t.Fatal(err)
	}
	addr := s.NameServer.Addr
	for what, want := range map[string]int{
		"connect " + addr: 1, "disconnect " + addr: 1, "request ": 2,
		"failed " + remoting.GetRouteInfoByTopic.String(): 1,
	} {
		if n := h.count(what); n != want {
			t.Errorf("%q was heard %d times, want %d: %q", what, n, want, h.heard)
		}
	}
	if _, err := client.New([]string{addr}, client.WithHooks(3)); err == nil ||
		!strings.Contains(err.Error(), "int") {
		t.Errorf("a hook that is none: got %v", err)
	}
}

// rotating gives another key with each question.
type rotating struct {
	mu   sync.Mutex
	keys []string
	fail error
}

func (r *rotating) Credentials(context.Context) (client.Credentials, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail != nil {
		return client.Credentials{}, r.fail
	}
	key := r.keys[0]
	r.keys = append(r.keys[1:], key)
	return client.Credentials{AccessKey: key, SecretKey: "secret", SecurityToken: "token"}, nil
}

func TestCredentialsAreAskedForEachRequest(t *testing.T) {
	t.Parallel()
	s := scripttest.NewCluster(t, 1)
	var mu sync.Mutex
	var seen []string
	s.NameServer.Handle(remoting.GetBrokerClusterInfo, func(r *scripttest.Request) *scripttest.Reply {
		mu.Lock()
		defer mu.Unlock()
		text := ""
		for _, name := range []string{"AccessKey", "SecurityToken"} {
			v, _ := r.Fields.Get(name)
			text += string(v) + " "
		}
		if v, _ := r.Fields.Get("Signature"); len(v) == 28 {
			text += "signed"
		}
		seen = append(seen, text)
		return &scripttest.Reply{}
	})
	keys := &rotating{keys: []string{"one", "two"}}
	c := newClient(t, s.NameServer.Addr, client.WithCredentials(keys))
	for range 2 {
		if err := c.Ping(within(t)); err != nil {
			t.Fatal(err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if diff := cmp.Diff([]string{"one token signed", "two token signed"}, seen); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	keys.fail = errors.New("vault is sealed")
	if err := c.Ping(within(t)); !errors.Is(err, keys.fail) {
		t.Errorf("without credentials: got %v", err)
	}
}

// tlsInFront listens with TLS for the names of a certificate and passes bytes on to a server.
func tlsInFront(t *testing.T, server string) (addr string, roots *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots = x509.NewCertPool()
	roots.AddCert(cert)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{{
		Certificate: [][]byte{der}, PrivateKey: key,
	}}})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { relay(in, server) })
		}
	})
	return l.Addr().String(), roots
}

func TestFaultTLSMissing(t *testing.T) {
	// Fault 22: there was no TLS, or one that verified nothing.
	t.Parallel()
	s := scripttest.NewCluster(t, 1)
	addr, roots := tlsInFront(t, s.NameServer.Addr)
	if err := newClient(t, addr, client.WithTLS(&tls.Config{RootCAs: roots})).Ping(within(t)); err != nil {
		t.Errorf("known certificate: %v", err)
	}
	err := newClient(t, addr, client.WithTLS(&tls.Config{})).Ping(within(t))
	var unknown x509.UnknownAuthorityError
	if !errors.As(err, &unknown) {
		t.Errorf("unknown certificate: got %v, want it refused", err)
	}
	err = newClient(t, addr, client.WithTLS(&tls.Config{
		RootCAs: roots, ServerName: "elsewhere.example",
	})).Ping(within(t))
	var name x509.HostnameError
	if !errors.As(err, &name) {
		t.Errorf("certificate of another host: got %v, want it refused", err)
	}
	open := &tls.Config{InsecureSkipVerify: true} // as the user says
	if err := newClient(t, addr, client.WithTLS(open)).Ping(within(t)); err != nil {
		t.Errorf("verification switched off: %v", err)
	}
}

func TestResolver(t *testing.T) {
	t.Parallel()
	s := scripttest.NewCluster(t, 1)
	var mu sync.Mutex
	answer := s.NameServer.Addr + ";127.0.0.1:1\nignored\n"
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		_, _ = w.Write([]byte(answer))
	}))
	t.Cleanup(web.Close)
	r, err := client.HTTPResolver(web.URL+"/rocketmq/nsaddr", nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(nil, client.WithResolver(r))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(within(t)) }()
	if err := c.Ping(within(t)); err != nil {
		t.Errorf("ping: %v", err)
	}
	servers := c.NameServers()
	if len(servers) != 2 || servers[0] != s.NameServer.Addr {
		t.Errorf("servers %q, want the one that answers in front", servers)
	}
	mu.Lock()
	answer = "nonsense"
	mu.Unlock()
	if _, err := r.Resolve(within(t)); err == nil {
		t.Error("an answer without an address was accepted")
	}
	if _, err := client.HTTPResolver("ftp://x", nil); err == nil {
		t.Error("an ftp address server was accepted")
	}
}

// TestResolverIsFollowed: a client goes over to the name servers that its resolver names later, keeps
// those it has while the resolver fails, and leaves connections to the others.
func TestResolverIsFollowed(t *testing.T) {
	t.Parallel()
	old, moved := scripttest.NewCluster(t, 1), scripttest.NewCluster(t, 1)
	old.SetTopic("t", 1)
	moved.SetTopic("t", 1)
	var answer atomic.Pointer[string]
	answer.Store(&old.NameServer.Addr)
	var asked atomic.Int64
	c, err := client.New(nil, client.WithResolveEvery(5*time.Millisecond), client.WithResolver(
		client.ResolverFunc(func(context.Context) ([]string, error) {
			asked.Add(1)
			if addr := answer.Load(); addr != nil {
				return []string{*addr}, nil
			}
			return nil, errors.New("scripted")
		})))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(within(t)) }()
	send := func(topic string) {
		t.Helper()
		m := &client.Message{Topic: topic, Body: []byte("x")}
		if _, err := newProducer(t, c).Send(within(t), m); err != nil {
			t.Fatal(err)
		}
	}
	send("t")
	answer.Store(nil)
	seen := asked.Load()
	eventually(t, "the resolver fails", func() bool { return asked.Load() > seen+2 })
	if err := c.Ping(within(t)); err != nil || old.NameServer.Count(remoting.GetBrokerClusterInfo) != 1 {
		t.Errorf("while the resolver fails: %v", err)
	}
	answer.Store(&moved.NameServer.Addr)
	eventually(t, "the new list is there", func() bool {
		return slices.Equal(c.NameServers(), []string{moved.NameServer.Addr})
	})
	if err := c.Ping(within(t)); err != nil || moved.NameServer.Count(remoting.GetBrokerClusterInfo) != 1 {
		t.Errorf("after the change: %v", err)
	}
	old.NameServer.Close()
	moved.SetTopic("u", 1)
	send("u")
	if n := len(moved.Brokers[0].Records("u", 0)); n != 1 {
		t.Errorf("the new cluster has %d messages", n)
	}
}

// TestFaultHostNamesRefused: name servers and brokers may be host names and IPv6 addresses.
func TestFaultHostNamesRefused(t *testing.T) {
	// Fault 21: addresses that are not IPv4 were refused.
	t.Parallel()
	s := scripttest.NewCluster(t, 1)
	_, port, _ := net.SplitHostPort(s.NameServer.Addr)
	if err := newClient(t, "localhost:"+port).Ping(within(t)); err != nil {
		t.Errorf("host name: %v", err)
	}
	var dialled string
	c := newClient(t, "[::1]:9876", client.WithDialer(
		func(ctx context.Context, network, addr string) (net.Conn, error) {
			dialled = addr
			var d net.Dialer
			return d.DialContext(ctx, network, s.NameServer.Addr)
		}))
	if err := c.Ping(within(t)); err != nil || dialled != "[::1]:9876" {
		t.Errorf("IPv6: %v, dialled %s", err, dialled)
	}
}

// TestNameServersInParallel: a server that takes no connection delays a call by much less than a
// dial's timeout, and the next call not at all.
func TestNameServersInParallel(t *testing.T) {
	t.Parallel()
	s := scripttest.NewCluster(t, 1)
	var mu sync.Mutex
	hung := 0
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		if addr == "black.hole:1" {
			mu.Lock()
			hung++
			mu.Unlock()
			<-ctx.Done()
			return nil, ctx.Err()
		}
		var d net.Dialer
		return d.DialContext(ctx, network, addr)
	}
	c := newClient(t, "black.hole:1;"+s.NameServer.Addr, client.WithDialer(dial),
		client.WithConnTimeouts(time.Minute, time.Second, time.Minute))
	for range 3 {
		from := time.Now()
		if err := c.Ping(within(t)); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(from); took > 10*time.Second {
			t.Errorf("a ping took %s beside a dead server", took)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if hung > 1 {
		t.Errorf("the dead server was dialled %d times", hung)
	}
}
