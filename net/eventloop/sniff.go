// SPDX-License-Identifier: Apache-2.0

package eventloop

import (
	"bytes"
	"strconv"
)

// foreign describes a protocol by the first bytes of its connections.
type foreign struct {
	prefix string
	notice string
	page   bool // answer with the page of httpPage
}

const (
	noticeHTTP  = "an HTTP client speaks to the remoting port"
	noticeRedis = "a Redis client speaks to the remoting port"
	noticeProxy = "a HAProxy PROXY header came to the remoting port, which does not take them"
)

// foreignProtocols is consulted only for the first bytes of a connection, when they are no valid
// frame length: frames of at most 16 MiB begin with a zero byte, and none of these do.
func foreignProtocols() []foreign {
	return []foreign{
		{"PRI ", "a gRPC client speaks to the remoting port, use the proxy port", false},
		{"GET ", noticeHTTP, true},
		{"POST", noticeHTTP, true},
		{"PUT ", noticeHTTP, true},
		{"HEAD", noticeHTTP, true},
		{"DELE", noticeHTTP, true},
		{"OPTI", noticeHTTP, true},
		{"PATC", noticeHTTP, true},
		{"CONN", noticeHTTP, true},
		{"TRAC", noticeHTTP, true},
		{"\x16\x03", "a TLS client speaks to the plain remoting port", false},
		{"SSH-", "an SSH client speaks to the remoting port", false},
		{"PING", noticeRedis, false},
		{"AUTH", noticeRedis, false},
		{"INFO", noticeRedis, false},
		{"*", noticeRedis, false},
		{"PROX", noticeProxy, false},
		{"\r\n\r\n", noticeProxy, false},
	}
}

// recognise returns the protocol whose connections begin with head.
func recognise(head []byte) (foreign, bool) {
	for _, f := range foreignProtocols() {
		if bytes.HasPrefix(head, []byte(f.prefix)) {
			return f, true
		}
	}
	return foreign{}, false
}

// httpPage is the whole answer to an HTTP/1 request.
func httpPage() []byte {
	const text = "This port speaks the RocketMQ remoting protocol, not HTTP.\n"
	b := []byte("HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n" +
		"Connection: close\r\nContent-Length: ")
	b = strconv.AppendInt(b, int64(len(text)), 10)
	return append(append(b, "\r\n\r\n"...), text...)
}
