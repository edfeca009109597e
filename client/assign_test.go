// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/skylarkmq/skylark/client"
)

// javaRooms are the rooms of the golden file.
type javaRooms struct{}

func (javaRooms) BrokerRoom(q client.Queue) string {
	room, _, _ := strings.Cut(q.Broker, "@")
	return room
}

func (javaRooms) ClientRoom(id string) string {
	n, _ := strconv.Atoi(id[len("10.0.0."):strings.IndexByte(id, '@')])
	if n%3 == 0 {
		return "roomB"
	}
	return "roomA"
}

// TestGoldenAssignors compares with what the classes of RocketMQ 5.5.0 assigned: every strategy,
// 1 to 16 members, 1 to 33 queues. A line has the strategy, members, queues, and for each member
// the indexes of its queues.
func TestGoldenAssignors(t *testing.T) {
	t.Parallel()
	f, err := os.Open("testdata/assign.txt.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	assignors := map[string]client.Assignor{}
	for _, a := range []client.Assignor{
		client.Averagely(), client.AveragelyByCircle(), client.ConsistentHash(),
		client.ByMachineRoom("roomA", "roomB"), client.NearbyRoom(client.Averagely(), javaRooms{}),
	} {
		assignors[a.Name()] = a
	}
	lines := 0
	for in := bufio.NewScanner(z); in.Scan(); lines++ {
		parts := strings.Fields(in.Text())
		n, _ := strconv.Atoi(parts[1])
		q, _ := strconv.Atoi(parts[2])
		a := assignors[parts[0]]
		if a == nil {
			t.Fatalf("no assignor %s", parts[0])
		}
		members, queues := javaMembers(n), javaQueues(q)
		for i, m := range members {
			var want []client.Queue
			for _, text := range strings.Split(parts[3+i], ",") {
				if at, err := strconv.Atoi(text); err == nil {
					want = append(want, queues[at])
				}
			}
			if got := a.Assign(m, members, queues); !slices.Equal(got, want) {
				t.Fatalf("%s, %d queues, member %d of %d: got %v, want %v", parts[0], q, i, n, got, want)
			}
		}
		if got := a.Assign("stranger", members, queues); len(got) != 0 {
			t.Errorf("%s gives %v to a client that is not a member", parts[0], got)
		}
	}
	if lines != 5*16*33 {
		t.Errorf("%d lines", lines)
	}
	fixed := client.ByConfig(javaQueues(9)[3:6]...)
	if got := fixed.Assign("a", []string{"a", "b"}, javaQueues(5)); !slices.Equal(got, javaQueues(9)[3:5]) {
		t.Errorf("%s: got %v", fixed.Name(), got)
	}
}

func javaMembers(n int) []string {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf("10.0.0.%d@%d#%d", i+1, i*7919, i*104729))
	}
	slices.Sort(list)
	return list
}

func javaQueues(n int) []client.Queue {
	var list []client.Queue
	for i := range n {
		list = append(list, client.Queue{
			Topic: "topic", Broker: fmt.Sprintf("room%c@broker%d", 'A'+i%3, i%2), ID: i,
		})
	}
	slices.SortFunc(list, func(a, b client.Queue) int {
		return cmp.Or(cmp.Compare(a.Broker, b.Broker), cmp.Compare(a.ID, b.ID))
	})
	return list
}
