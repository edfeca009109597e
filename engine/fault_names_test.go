// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/engine"
	"github.com/skylarkmq/skylark/engine/enginetest"
	"github.com/skylarkmq/skylark/nameserver"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

// startBroker runs a broker without a cluster around it.
func startBroker(t *testing.T, cfg engine.Config) *engine.Broker {
	t.Helper()
	b, err := engine.New(cfg)
	if err == nil {
		err = b.Start(context.Background())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		begun := time.Now()
		if _ = b.Close(ctx); time.Since(begun) > 8*time.Second {
			t.Errorf("the end took %v", time.Since(begun))
		}
	})
	return b
}

func startNames(t *testing.T, listen string) *nameserver.Server {
	t.Helper()
	names, err := startVictimNames(t.TempDir(), listen)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = names.Close() })
	return names
}

// TestFaultNameServerAway: a broker whose name server cannot be reached starts, serves the clients
// that know it, says what is missing once, and registers when the name server comes up.
func TestFaultNameServerAway(t *testing.T) {
	t.Parallel()
	reserved, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := reserved.Addr().String()
	_ = reserved.Close()
	var log journal
	cfg := quietConfig(t)
	cfg.NameServers = addr
	logTo(&log)(&cfg)
	begun := time.Now()
	b := startBroker(t, cfg)
	if took := time.Since(begun); took > 10*time.Second { // a wait would be 24 s and more
		t.Errorf("the start took %v", took)
	}
	p := newPeer(t, b.Addr().String())
	for i := range 5 {
		p.send(fmt.Sprint("alone", i), 0, "x")
	}
	if d := p.pull(pullRequest("alone0", 0, 0, "*", 0)); d.bodies() != "x" {
		t.Errorf("pulled %v %s", d.code, d.remark)
	}
	if lines := log.lines("level=WARN", "not registered with name server", addr); len(lines) != 1 {
		t.Errorf("said %d times: %q", len(lines), lines)
	}
	startNames(t, addr)
	names := newPeer(t, addr)
	within(t, 15*time.Second, func() bool {
		r := names.call(remoting.GetRouteInfoByTopic, &protocol.RouteRequest{Topic: "alone4"}, nil)
		return r.Code == remoting.Success && strings.Contains(string(r.Body), b.Advertised().Addr)
	})
	within(t, 15*time.Second, func() bool { // the line comes behind the registration itself
		return len(log.lines("registered with name server", addr)) > 1
	})
}

// TestFaultNameServerSilent: a name server that takes connections and answers nothing holds up
// neither the start nor, after a first wait, the creation of topics, and heartbeats not at all.
func TestFaultNameServerSilent(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	names := startNames(t, "127.0.0.1:0")
	cfg := quietConfig(t)
	cfg.NameServers = silent.Addr().String() + ";" + names.Addr()
	begun := time.Now()
	b := startBroker(t, cfg)
	// Waiting for the silent one takes 24 s each time.
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("the start took %v", took)
	}
	var wg sync.WaitGroup
	begun = time.Now()
	for i := range 40 {
		wg.Go(func() { newPeer(t, b.Addr().String()).send(fmt.Sprint("slow", i), 0, "x") })
	}
	p := newPeer(t, b.Addr().String())
	beat := time.Now()
	p.heartbeat("c", "patient", tags("slow0", "*"))
	if took := time.Since(beat); took > 5*time.Second {
		t.Errorf("a heartbeat took %v", took)
	}
	wg.Wait()
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("40 new topics took %v", took)
	}
	r := newPeer(t, names.Addr()).call(remoting.GetRouteInfoByTopic, &protocol.RouteRequest{Topic: "slow39"}, nil)
	if r.Code != remoting.Success {
		t.Errorf("route at the other name server: %v %s", r.Code, r.Remark)
	}
}

// within is eventually with another limit.
func within(t testing.TB, limit time.Duration, happened func() bool) {
	t.Helper()
	deadline := time.After(limit)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !happened() {
		select {
		case <-deadline:
			t.Fatalf("it does not happen within %v", limit)
		case <-tick.C:
		}
	}
}

// TestFaultUnreachableAddress: an address that others cannot reach is warned about at the start, with
// the key that changes it.
func TestFaultUnreachableAddress(t *testing.T) {
	t.Parallel()
	for _, addr := range []string{"0.0.0.0", "169.254.7.7", "172.17.0.3", "10.88.0.9"} {
		var log journal
		cfg := quietConfig(t)
		cfg.BrokerIP1 = addr
		logTo(&log)(&cfg)
		b := startBroker(t, cfg)
		if !strings.HasPrefix(b.Advertised().Addr, addr+":") {
			t.Errorf("%s: advertised %s", addr, b.Advertised().Addr)
		}
		if lines := log.lines("level=WARN", "brokerIP1", addr); len(lines) != 1 {
			t.Errorf("%s: warnings %q", addr, lines)
		}
	}
}

// TestFaultConfigUpdate: paths and commands cannot be changed from afar, values are data, and what is
// refused leaves no file behind.
func TestFaultConfigUpdate(t *testing.T) {
	t.Parallel()
	outside := t.TempDir()
	conf := filepath.Join(outside, "broker.conf")
	if err := os.WriteFile(conf, []byte("brokerName=b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cluster := enginetest.Start(t, func(c *engine.Config) { c.Path = conf })
	target := filepath.Join(outside, "pwned")
	for _, c := range []struct {
		server string
		code   remoting.RequestCode
		body   string
		want   remoting.ResponseCode
	}{
		{cluster.Broker(), remoting.UpdateBrokerConfig, "rocketmqHome=-c $@|sh . echo id;touch " + target + ";", remoting.NoPermission},
		{cluster.Broker(), remoting.UpdateBrokerConfig, "brokerConfigPath=" + target, remoting.NoPermission},
		{cluster.Broker(), remoting.UpdateBrokerConfig, "storePathRootDir=" + target, remoting.NoPermission},
		{cluster.Broker(), remoting.UpdateBrokerConfig, "store\\u0050athRootDir=" + target, remoting.NoPermission},
		{cluster.Broker(), remoting.UpdateBrokerConfig, "brokerPermission=6\nstorePathCommitLog=" + target, remoting.NoPermission},
		{cluster.Broker(), remoting.UpdateBrokerConfig, "configBlackList=none", remoting.NoPermission},
		{cluster.NameServer(), remoting.UpdateNamesrvConfig, "rocketmqHome=" + target, remoting.NoPermission},
		{cluster.NameServer(), remoting.UpdateNamesrvConfig, "configStorePath=" + target, remoting.NoPermission},
		{cluster.NameServer(), remoting.UpdateNamesrvConfig, "kvConfigPath=" + target, remoting.NoPermission},
		{cluster.NameServer(), remoting.UpdateNamesrvConfig, "configBlackList=none", remoting.NoPermission},
	} {
		r := newPeer(t, c.server).call(c.code, nil, []byte(c.body))
		if r.Code != c.want || r.Remark == "" {
			t.Errorf("%q: %v %q, want %v", c.body, r.Code, r.Remark, c.want)
		}
	}
	// A value with a line break stays one value in the file.
	r := newPeer(t, cluster.Broker()).call(remoting.UpdateBrokerConfig, nil,
		[]byte("msgTraceTopicName=a\\nstorePathRootDir="+target))
	if r.Code != remoting.Success {
		t.Errorf("a value with a line break: %v %s", r.Code, r.Remark)
	}
	again := engine.Default()
	if _, err := again.Load(conf, false); err != nil || again.StoreRoot == target || !strings.HasPrefix(again.TraceTopicName, "a\n") {
		t.Errorf("read back: %v, root %q, name %q", err, again.StoreRoot, again.TraceTopicName)
	}
	if _, err := os.Stat(target); err == nil {
		t.Error("a file was written")
	}
}
