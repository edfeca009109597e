// SPDX-License-Identifier: Apache-2.0

//go:build interop

package interop

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/perf/workload"
)

// The real servers take TLS on their ordinary ports, with a certificate of their own making.
func TestOurTLSAgainstApache(t *testing.T) {
	t.Parallel()
	at := apacheServers(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	topic := name(t, "T")
	c := ourClient(t, at, client.WithTLS(&tls.Config{InsecureSkipVerify: true}))
	p, err := c.NewProducer(name(t, "PG"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Send(ctx, &client.Message{Topic: topic, Body: []byte("secret")}); err != nil {
		t.Fatal(err)
	}
	readAll(ctx, t, c, topic, []string{"secret"})
	if err := ourClient(t, at, client.WithTLS(&tls.Config{})).Ping(ctx); err == nil {
		t.Error("an unknown certificate was taken")
	}
}

// The real broker with authentication takes our signatures and refuses wrong ones.
func TestOurCredentialsAgainstApache(t *testing.T) {
	t.Parallel()
	const provider = "org.apache.rocketmq.auth.authentication.provider.LocalAuthenticationMetadataProvider"
	const keys = `{"accessKey":"rocketmq2","secretKey":"12345678"}`
	at := startApache(t, scratch(t), map[string]string{
		// Brokers of one process and name share what they know of users.
		"brokerName":            "broker-secure",
		"authenticationEnabled": "true", "authenticationMetadataProvider": provider,
		"initAuthenticationUser":               `{"username":"rocketmq2","password":"12345678"}`,
		"innerClientAuthenticationCredentials": keys,
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	topic := name(t, "T")
	send := func(opts ...client.Option) error {
		p, err := ourClient(t, at, opts...).NewProducer(name(t, "PG"), client.WithRetries(0),
			client.WithLinger(time.Millisecond, 32<<10))
		if err != nil {
			t.Fatal(err)
		}
		_, errs := p.SendBatch(ctx, &client.Message{Topic: topic, Body: []byte("signed")},
			&client.Message{Topic: topic, Body: []byte("signed too")})
		if errs[0] != nil {
			return errs[0]
		}
		_, err = p.Send(ctx, &client.Message{Topic: topic, Body: []byte("alone"), Keys: []string{"k"}})
		return err
	}
	good := client.WithCredentials(client.StaticCredentials{AccessKey: "rocketmq2", SecretKey: "12345678"})
	eventually(t, 20*time.Second, func() error { return send(good) }) // the first user is made at start
	for _, wrong := range []client.StaticCredentials{
		{AccessKey: "rocketmq2", SecretKey: "wrong"}, {AccessKey: "nobody", SecretKey: "12345678"},
	} {
		var be *client.BrokerError
		if err := send(client.WithCredentials(wrong)); !errors.As(err, &be) || !errors.Is(err, client.ErrPermission) {
			t.Errorf("%+v: %v", wrong, err)
		}
	}
	if err := send(); !errors.Is(err, client.ErrPermission) {
		t.Errorf("without credentials: %v", err)
	}
	readAll(ctx, t, ourClient(t, at, good), topic, []string{"signed", "signed too", "alone"})
	signedLoads(ctx, t, at, &workload.Credentials{AccessKey: "rocketmq2", SecretKey: "12345678"})
}

// RocketMQ's tool shows our trace of a message.
func TestOurTraceIsShown(t *testing.T) {
	t.Parallel()
	conf := map[string]string{"traceTopicEnable": "true"}
	bothServers(t, conf, func(t *testing.T, at target) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		topic, group := name(t, "T"), name(t, "PG")
		p, err := ourClient(t, at).NewProducer(group, client.WithTrace(""))
		if err != nil {
			t.Fatal(err)
		}
		res, err := p.Send(ctx, &client.Message{Topic: topic, Tag: "TagT", Body: []byte("traced")})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Close(ctx); err != nil { // sends the record
			t.Fatal(err)
		}
		jvm := java(t)
		eventually(t, 30*time.Second, func() error {
			var out string
			err := jvm.do("mqadmin", args{
				"class": "message.QueryMsgTraceByIdSubCommand", "args": []string{"-i", res.ID},
				"namesrv": at.NameServer,
			}, &out)
			if err == nil && (!strings.Contains(out, "Pub") || !strings.Contains(out, group)) {
				err = fmt.Errorf("no trace in\n%s", out)
			}
			return err
		})
	})
}
