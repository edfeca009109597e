// SPDX-License-Identifier: Apache-2.0

package client

import "time"

// Options that only tests have, to make what takes seconds happen soon.

func WithLocalRetry(d time.Duration) ConsumerOption {
	return func(c *consumerConfig) { c.againAfter = d }
}

func WithSendBackTimeout(d time.Duration) ConsumerOption {
	return func(c *consumerConfig) { c.backWithin = d }
}

func WithCommitEvery(d time.Duration) ConsumerOption {
	return func(c *consumerConfig) { c.commitEvery = d }
}

func WithLockEvery(d time.Duration) ConsumerOption {
	return func(c *consumerConfig) { c.lockEvery = d }
}

func WithRebalanceEvery(every, least time.Duration) ConsumerOption {
	return func(c *consumerConfig) { c.rebalanceEvery, c.rebalanceLeast = every, least }
}

func WithBeatEvery(d time.Duration) Option { return func(c *config) { c.beatEvery = d } }

func WithRouteEvery(d time.Duration) Option { return func(c *config) { c.routeEvery = d } }

func WithResolveEvery(d time.Duration) Option { return func(c *config) { c.resolveEvery = d } }
