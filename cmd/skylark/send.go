// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skylarkmq/skylark/client"
)

const defaultNameServer = "127.0.0.1:9876"

// nameServerFlag adds -n; its default comes from NAMESRV_ADDR.
func (a *app) nameServerFlag(cmd *cobra.Command, to *string) {
	def := defaultNameServer
	if v, ok := a.env("NAMESRV_ADDR"); ok && v != "" {
		def = v
	}
	cmd.Flags().StringVarP(to, "name-server", "n", def,
		"name servers as host:port, separated by ';' (environment NAMESRV_ADDR)")
}

type sendFlags struct {
	nameServers, topic, body, tag, group, ordering string
	keys, properties                               []string
	timeoutMS                                      int
}

func (a *app) sendCommand() *cobra.Command {
	var f sendFlags
	cmd := &cobra.Command{
		Use:   "send",
		Short: "Send one message",
		Example: "  skylark send --topic demo --body hello\n" +
			"  skylark send --topic demo --body - --tag eu --key 7 < order.json",
		Args: a.noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.send(cmd.Context(), &f) },
	}
	a.nameServerFlag(cmd, &f.nameServers)
	fl := cmd.Flags()
	fl.StringVarP(&f.topic, "topic", "t", "", "topic (required)")
	fl.StringVarP(&f.body, "body", "b", "", "body; '-' reads standard input (required)")
	fl.StringVar(&f.tag, "tag", "", "tag")
	fl.StringArrayVarP(&f.keys, "key", "k", nil, "key to find the message by; may be repeated")
	fl.StringArrayVarP(&f.properties, "property", "p", nil,
		"user property as name=value; may be repeated")
	fl.StringVar(&f.ordering, "ordering-key", "", "messages with one ordering key stay in order")
	fl.StringVarP(&f.group, "group", "g", "skylark_send", "producer group")
	fl.IntVar(&f.timeoutMS, "timeout-ms", 3000,
		"time for the whole send, retries included, 1 to 600000")
	return cmd
}

func (a *app) send(ctx context.Context, f *sendFlags) error {
	if err := required("topic", f.topic, "body", f.body); err != nil {
		return err
	}
	if f.timeoutMS < 1 || f.timeoutMS > 600_000 {
		return misuse{fmt.Errorf("--timeout-ms is %d, want 1 to 600000", f.timeoutMS)}
	}
	m, err := f.message(os.Stdin)
	if err != nil {
		return err
	}
	c, err := newClient(f.nameServers)
	if err != nil {
		return misuse{err}
	}
	defer closeClient(c)
	timeout := time.Duration(f.timeoutMS) * time.Millisecond
	p, err := c.NewProducer(f.group, client.WithSendTimeout(timeout))
	if err != nil {
		return misuse{err}
	}
	res, err := p.Send(ctx, m)
	if err != nil {
		return advise(err, f.nameServers)
	}
	if a.json {
		return a.printJSON(map[string]any{
			"id": res.ID, "offset_id": res.OffsetID, "status": res.Status.String(),
			"topic": res.Queue.Topic, "broker": res.Queue.Broker, "queue": res.Queue.ID,
			"offset": res.Offset,
		})
	}
	_, err = fmt.Fprintf(a.stdout, "%s id=%s broker=%s queue=%d offset=%d\n",
		res.Status, res.ID, res.Queue.Broker, res.Queue.ID, res.Offset)
	return err
}

func (f *sendFlags) message(stdin io.Reader) (*client.Message, error) {
	m := &client.Message{
		Topic: f.topic, Tag: f.tag, Keys: f.keys, OrderingKey: f.ordering, Body: []byte(f.body),
	}
	if f.body == "-" {
		var err error
		if m.Body, err = io.ReadAll(stdin); err != nil {
			return nil, fmt.Errorf("reading the body from standard input: %w", err)
		}
	}
	for _, p := range f.properties {
		name, value, ok := strings.Cut(p, "=")
		if !ok {
			return nil, misuse{fmt.Errorf("property %q is not name=value", p)}
		}
		if m.Properties == nil {
			m.Properties = map[string]string{}
		}
		m.Properties[name] = value
	}
	return m, nil
}

// newClient makes a client that leaves the limit of a message to the brokers.
func newClient(nameServers string) (*client.Client, error) {
	return client.New([]string{nameServers}, client.WithMaxMessageSize(64<<20))
}

// closeClient gives a client a moment to say good-bye.
func closeClient(c *client.Client) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	_ = c.Close(ctx) // nothing is left that it could lose
}

// adviseDial adds what to do about a name server that cannot be reached.
func adviseDial(err error) error {
	var dial *net.OpError
	if !errors.As(err, &dial) || dial.Op != "dial" {
		return err
	}
	return fmt.Errorf("%w\nIs a name server running there? Start one with 'skylark server', "+
		"or name another with -n", err)
}

// advise adds what to do about errors that a user meets first.
func advise(err error, nameServers string) error {
	switch {
	case errors.Is(err, client.ErrNoNameServer):
		return fmt.Errorf("%w\nIs a name server running at %s? Start one with 'skylark server', "+
			"or name another with -n", err, nameServers)
	case errors.Is(err, client.ErrNoRoute):
		return fmt.Errorf("%w\nIs a broker registered with %s, and may it create topics "+
			"(autoCreateTopicEnable)?", err, nameServers)
	case errors.Is(err, client.ErrInvalidMessage), errors.Is(err, client.ErrMessageTooLarge):
		return misuse{err}
	default:
		return err
	}
}
