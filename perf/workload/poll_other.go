// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package workload

import "errors"

const haveEpoll = false

func newEpoll() (poller, error) { return nil, errors.New("workload: epoll is there on Linux only") }

func preciseTimers() (restore func()) { return func() {} }
