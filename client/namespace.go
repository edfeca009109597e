// SPDX-License-Identifier: Apache-2.0

package client

import (
	"strings"

	"github.com/skylarkmq/skylark/net/protocol"
)

const namespaceSeparator = "%"

// onWire returns the name that a topic or group has at brokers: N%R for resource R in namespace N,
// behind a retry or dead-letter prefix (RocketMQ's NamespaceUtil.wrapNamespace). Names that have
// the namespace already, system topics and system groups stay as they are, so calling it twice does
// no harm. Everything the user sees has plain names; everything sent has passed through here.
func (c *Client) onWire(name string) string { return wrapName(c.cfg.namespace, name) }

// offWire returns the name the user knows a topic or group by.
func (c *Client) offWire(name string) string { return unwrapName(c.cfg.namespace, name) }

func wrapName(namespace, name string) string {
	if namespace == "" || name == "" || belongsToSystem(name) {
		return name
	}
	prefix, rest := cutGroupPrefix(name)
	if strings.HasPrefix(rest, namespace+namespaceSeparator) {
		return name
	}
	return prefix + namespace + namespaceSeparator + rest
}

func unwrapName(namespace, name string) string {
	if namespace == "" || belongsToSystem(name) {
		return name
	}
	prefix, rest := cutGroupPrefix(name)
	plain, found := strings.CutPrefix(rest, namespace+namespaceSeparator)
	if !found {
		return name
	}
	return prefix + plain
}

func belongsToSystem(name string) bool {
	return protocol.IsSystemTopic(name) || protocol.IsSystemGroup(name) ||
		strings.HasSuffix(name, protocol.ReplyTopicSuffix)
}

// cutGroupPrefix takes the prefix of a retry or dead-letter topic off.
func cutGroupPrefix(name string) (prefix, rest string) {
	for _, p := range []string{protocol.RetryPrefix, protocol.DLQPrefix} {
		if rest, ok := strings.CutPrefix(name, p); ok {
			return p, rest
		}
	}
	return "", name
}
