// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"strconv"
)

// dimension is something that a broker has many of.
type dimension struct {
	name     string
	about    string // what one level sets up, and what the loads are
	one      string // "connection"
	levels   []int
	settings map[string]string // of broker.conf, over the common ones
	figures  []figure
	measure  func(ctx context.Context, l *lab, level int) error
}

// Names of figures.
const (
	memoryKB    = "RssAnon, kB"
	openFiles   = "open files"
	mappings    = "memory mappings"
	idleCPU     = "CPU at rest, % of a core"
	sendCPU     = "CPU of a send, us"
	besideEmpty = "the same, over an empty broker's"
	readCPU     = "CPU of a message read, us"
	startClean  = "start after a graceful end, s"
	startKilled = "start after kill -9, s"

	startCleanCPU  = "CPU of a start after a graceful end, s"
	startKilledCPU = "CPU of a start after kill -9, s"

	spreadCPU  = "CPU of a send at 3000/s over all connections, us"
	allCPU     = "CPU of a send spread over all queues, us"
	againKB    = "RssAnon after a restart, kB"
	createMS   = "creation of one topic, ms"
	catchUpCPU = "CPU of a message delivered from a backlog, us"
	catchUser  = "of it in the broker's own code, us"
	catchAll   = "messages in an answer"
	answerCPU  = "CPU of an answer with them, us"
	liveCPU    = "CPU of a message delivered as it comes, us"
	besideCPU  = "CPU of a send to another queue of that topic, us"
	wakeCPU    = "CPU of a pull held and woken, us"
	manyCPU    = "CPU of a send with properties of 16 bytes each, us"
	beatCPU    = "CPU of a heartbeat, us"
	membersCPU = "CPU of asking for a group's members, us"

	registerCPU  = "CPU of a registration of 1000 topics, us"
	registerSize = "bytes of a registration"
	routeSize    = "bytes of a route"
	routeCPU     = "CPU of a route's query, us"
)

// Noise of the figures, in their units.
const (
	noiseKB = 16e3 // so much garbage may wait for the collector, whatever the level
	noiseUS = 0.3
	noiseS  = 0.05
)

func dimensions() []dimension {
	memory := figure{name: memoryKB, kind: linear, noise: noiseKB}
	files := figure{name: openFiles, kind: linear, noise: 4}
	maps := figure{name: mappings, kind: linear, noise: 20}
	send := figure{name: sendCPU, why: "varies with the machine's other work: see the next row"}
	beside := figure{name: besideEmpty, kind: flat}
	idle := figure{name: idleCPU, kind: linear, noise: 0.5}
	clean := figure{name: startClean, kind: linear, noise: noiseS}
	killed := figure{name: startKilled, kind: linear, noise: noiseS}
	cleanCPU := figure{name: startCleanCPU, kind: linear, noise: noiseS}
	killedCPU := figure{name: startKilledCPU, kind: linear, noise: noiseS}
	return []dimension{
		{
			name: "connections", one: "connection", levels: []int{1, 100, 1000, 10_000},
			about: "producers that have sent a heartbeat and are idle; then a load beside them, and one " +
				"that is spread over so many connections",
			figures: []figure{
				memory, files, maps, idle, send, beside,
				{name: beatCPU, kind: flat, noise: 3},
				{name: spreadCPU, why: "one message for each system call from 100 on, whatever the number"},
			},
			measure: measureConnections,
		},
		{
			name: "queues", one: "queue", levels: []int{1, 1000, 10_000, 100_000},
			about: "queues with a message each, in topics of up to 1000; then a load beside them on a " +
				"topic of 8, and one that is spread over all of them",
			figures: []figure{
				memory, files, maps, idle, send, beside,
				{name: allCPU, why: "each message opens, maps and fills a page of another file"},
				clean, cleanCPU,
				{name: againKB, kind: linear, noise: noiseKB},
				killed, killedCPU,
			},
			measure: measureQueues,
		},
		{
			name: "topics", one: "topic", levels: []int{1, 100, 1000, 10_000},
			about: "topics of 8 queues without messages, made in batches, registered with the name server",
			figures: []figure{
				memory, files, idle, send, beside, {name: createMS, kind: linear, noise: 10}, clean, cleanCPU,
			},
			measure: measureTopics,
		},
		{
			name: "groups", one: "group", levels: []int{1, 10, 100, 1000},
			about: "consumer groups on one topic, each with a client and a position in 8 queues; sends to " +
				"that topic; then all of them read what comes, and a backlog",
			figures: []figure{
				memory, files, idle, send, beside,
				{name: membersCPU, kind: flat, noise: 3},
				{name: liveCPU, kind: flat, noise: 2},
				{name: catchUpCPU, kind: flat, noise: noiseUS},
				{name: catchUser, kind: flat, noise: 0.1},
				{name: catchAll, why: "32 are asked for"},
				{name: answerCPU, kind: flat, noise: 32 * noiseUS},
			},
			measure: measureGroups,
		},
		{
			name: "segments", one: "segment of 16 MiB", levels: []int{1, 6, 60},
			settings: map[string]string{
				"mappedFileSizeCommitLog": strconv.Itoa(segmentBytes), "maxMessageSize": "1048576",
			},
			about: "a log of so many segments full of 1 KB messages; each start, sends behind it, and " +
				"reads of it from the first message on",
			figures: []figure{
				memory, files, maps, idle, send, beside,
				{name: readCPU, kind: flat, noise: noiseUS},
				clean, cleanCPU,
				killed, killedCPU,
			},
			measure: measureSegments,
		},
		{
			name: "pulls", one: "held pull", levels: []int{1, 1000, 10_000, 50_000},
			about: "pulls that wait on 1000 queues of one topic, by up to 50 groups; sends to another " +
				"topic and to another queue of the same; then each queue gets a message",
			figures: []figure{
				memory, files, idle, send, beside,
				{name: besideCPU, kind: flat, noise: noiseUS},
				{name: wakeCPU, kind: flat, noise: 2},
			},
			measure: measurePulls,
		},
		{
			name: "properties", one: "byte", levels: []int{10, 100, 1000, 10_000, 32_000},
			about: "messages of 128 bytes with a user property of so many bytes, and with that many bytes " +
				"of properties of 16 bytes each; 32 767 bytes are the format's bound",
			figures: []figure{
				{name: sendCPU, kind: linear, noise: noiseUS},
				{name: manyCPU, kind: linear, noise: noiseUS},
				{name: readCPU, kind: linear, noise: noiseUS},
			},
			measure: measureProperties,
		},
		{
			name: "brokers", one: "broker", levels: []int{1, 10, 100},
			about: "brokers that register 1000 topics of 8 queues with the name server, the same ones on " +
				"each, by a connection each, again and again; then clients ask for routes",
			figures: []figure{
				memory, files, idle,
				{name: registerCPU, kind: flat, noise: 200},
				{name: registerSize, kind: flat},
				{name: routeSize, kind: linear},
				{name: routeCPU, kind: linear, noise: 5},
			},
			measure: measureBrokers,
		},
	}
}
