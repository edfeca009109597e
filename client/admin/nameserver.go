// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/skylarkmq/skylark/net/invoke"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

// KV returns a value of the name servers' key-value configuration. ErrNotFound when it is not set.
func (a *Admin) KV(ctx context.Context, namespace, key string) (string, error) {
	op := fmt.Sprintf("get key %s of namespace %s", key, namespace)
	ctx, cancel := a.bounded(ctx)
	defer cancel()
	res, err := a.c.CallNameServer(ctx, op, &invoke.Request{
		Code: remoting.GetKVConfig, Header: &protocol.GetKVConfigRequest{Namespace: namespace, Key: key},
	})
	if err != nil {
		return "", explain(op, err)
	}
	var h protocol.GetKVConfigResponse
	if err := h.Decode(res.Command); err != nil {
		return "", explain(op, err)
	}
	return h.Value, nil
}

// KVs returns all keys of a namespace. ErrNotFound when there is none.
func (a *Admin) KVs(ctx context.Context, namespace string) (map[string]string, error) {
	var table protocol.KVTable
	err := a.askName(ctx, "list keys of namespace "+namespace, remoting.GetKVListByNamespace,
		&protocol.KVListRequest{Namespace: namespace}, &table)
	return table.Table, err
}

// PutKV sets a value at every name server.
func (a *Admin) PutKV(ctx context.Context, namespace, key, value string) ([]Done, error) {
	h := &protocol.PutKVConfigRequest{Namespace: namespace, Key: key, Value: value}
	return a.tellNames(ctx, fmt.Sprintf("put key %s of namespace %s", key, namespace),
		remoting.PutKVConfig, h, nil)
}

// DeleteKV removes a value from every name server. One that is not there is no error.
func (a *Admin) DeleteKV(ctx context.Context, namespace, key string) ([]Done, error) {
	return a.tellNames(ctx, fmt.Sprintf("delete key %s of namespace %s", key, namespace),
		remoting.DeleteKVConfig, &protocol.DeleteKVConfigRequest{Namespace: namespace, Key: key}, nil)
}

// OrderConfig returns a topic's order configuration, "broker:queues;...". ErrNotFound when it has
// none.
func (a *Admin) OrderConfig(ctx context.Context, topic string) (string, error) {
	return a.KV(ctx, protocol.OrderTopicNamespace, topic)
}

// PutOrderConfig fixes which queues of a topic are written, "broker:queues;...", whether their
// brokers are there or not, so that messages with one ordering key stay in one queue.
func (a *Admin) PutOrderConfig(ctx context.Context, topic, value string) ([]Done, error) {
	return a.PutKV(ctx, protocol.OrderTopicNamespace, topic, value)
}

// DeleteOrderConfig gives a topic's queues free again.
func (a *Admin) DeleteOrderConfig(ctx context.Context, topic string) ([]Done, error) {
	return a.DeleteKV(ctx, protocol.OrderTopicNamespace, topic)
}

// NameServerConfig returns the settings in force at each name server.
func (a *Admin) NameServerConfig(ctx context.Context) ([]Answer[map[string]string], error) {
	op := "name server configuration"
	return eachName(ctx, a, op, func(ctx context.Context, b Broker) (map[string]string, error) {
		res, err := a.ask(ctx, op, b, remoting.GetNamesrvConfig, nil, nil)
		if err != nil {
			return nil, err
		}
		return parseProperties(res.Body), nil
	})
}

// UpdateNameServerConfig changes settings of every name server at run time.
func (a *Admin) UpdateNameServerConfig(
	ctx context.Context, values map[string]string,
) ([]Done, error) {
	op := "update name server configuration"
	body, err := renderProperties(op, values)
	if err != nil {
		return nil, err
	}
	return a.tellNames(ctx, op, remoting.UpdateNamesrvConfig, nil, body)
}

// WipeWritePerm has every name server tell clients that nothing can be written at a broker any
// more, before it is taken down. The values are the numbers of topics that changed.
func (a *Admin) WipeWritePerm(ctx context.Context, broker string) ([]Answer[int], error) {
	op := "wipe write permission of " + broker
	return eachName(ctx, a, op, func(ctx context.Context, b Broker) (int, error) {
		res, err := a.ask(ctx, op, b, remoting.WipeWritePermOfBroker,
			&protocol.BrokerNameRequest{BrokerName: broker}, nil)
		if err != nil {
			return 0, err
		}
		var h protocol.WipeWritePermResponse
		err = h.Decode(res.Command)
		return int(h.WipeTopicCount), explain(op, err)
	})
}

// AddWritePerm takes back WipeWritePerm.
func (a *Admin) AddWritePerm(ctx context.Context, broker string) ([]Answer[int], error) {
	op := "add write permission of " + broker
	return eachName(ctx, a, op, func(ctx context.Context, b Broker) (int, error) {
		res, err := a.ask(ctx, op, b, remoting.AddWritePermOfBroker,
			&protocol.BrokerNameRequest{BrokerName: broker}, nil)
		if err != nil {
			return 0, err
		}
		var h protocol.AddWritePermResponse
		err = h.Decode(res.Command)
		return int(h.AddTopicCount), explain(op, err)
	})
}

// parseProperties reads key=value lines.
func parseProperties(body []byte) map[string]string {
	values := map[string]string{}
	for line := range strings.Lines(string(body)) {
		key, value, ok := strings.Cut(strings.TrimRight(line, "\r\n"), "=")
		if key = strings.TrimSpace(key); ok && key != "" && !strings.HasPrefix(key, "#") {
			values[key] = strings.TrimSpace(value)
		}
	}
	return values
}

// renderProperties writes key=value lines, sorted.
func renderProperties(op string, values map[string]string) ([]byte, error) {
	if len(values) == 0 {
		return nil, invalid(op, "no value given")
	}
	var body []byte
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if key == "" || strings.ContainsAny(key, "=\r\n#") || strings.ContainsAny(values[key], "\r\n") {
			return nil, invalid(op, "key %q with value %q cannot be a line of key=value", key, values[key])
		}
		body = append(body, key+"="+values[key]+"\n"...)
	}
	return body, nil
}
