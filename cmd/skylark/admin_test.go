// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skylarkmq/skylark/client"
	"github.com/skylarkmq/skylark/client/admin"
	"github.com/skylarkmq/skylark/client/clienttest"
)

// adminLab is a cluster with a topic, a message in it and two groups.
type adminLab struct {
	cluster *clienttest.Cluster
	sent    client.SendResult
	words   *strings.Replacer
}

func newAdminLab(t *testing.T) *adminLab {
	t.Helper()
	cluster := clienttest.Start(t, clienttest.WithoutAutoCreate(), clienttest.WithTopic("created", 2),
		clienttest.WithGroups("billing", "audit"))
	c := cluster.Client(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	p, err := c.NewProducer("shop")
	if err != nil {
		t.Fatal(err)
	}
	sent, err := p.Send(ctx, &client.Message{
		Topic: "created", Tag: "eu", Keys: []string{"7"}, Body: []byte("hello"),
		Queue: &client.Queue{Topic: "created", Broker: "broker-a", ID: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	return &adminLab{cluster: cluster, sent: sent, words: strings.NewReplacer(
		"BROKER", cluster.Broker(0).Addr(), "UNIQUE", sent.ID, "OFFSETID", sent.OffsetID)}
}

func (l *adminLab) args(line string, more ...string) []string {
	args := append([]string{"admin"}, strings.Fields(l.words.Replace(line))...)
	return append(append(args, "-n", l.cluster.NameServer()), more...)
}

// TestAdminCommands: mqadmin's command lines do what they say, in this order, print what its users
// look for, and give one JSON object a line with --json.
func TestAdminCommands(t *testing.T) {
	t.Parallel()
	l := newAdminLab(t)
	for _, k := range []struct {
		line string
		want []string
	}{
		{"clusterList", []string{"#Cluster Name", "DefaultCluster", "broker-a", "BROKER", "V5_5_0", "true"}},
		{"clusterList -m", []string{"#InTotalToday", "broker-a"}},
		{"updateTopic -c DefaultCluster -t made -r 3 -w 3 -a +message.type=FIFO", []string{"create topic to BROKER success.", "readQueueNums=3", "perm=RW-"}},
		{"updateTopic -b BROKER -t made -r 5 -w 5 -p 4 -a -message.type", []string{"success", "readQueueNums=5", "perm=R--"}},
		{"updateTopic -b BROKER -t made -r 5 -w 5 -o true", []string{"order=true"}},
		{"topicList", []string{"created", "made"}},
		{"topicList -c", []string{"#Consumer Group", "DefaultCluster"}},
		{"topicRoute -t made", []string{"#BrokerAddrs", "broker-a", "BROKER", "5", "RW-"}},
		{"topicStatus -t created", []string{"#Max Offset", "broker-a", "Topic Put TPS"}},
		{"updateSubGroup -c DefaultCluster -g made -r 3 -m true", []string{"create subscription group to BROKER success."}},
		{`updateSubGroup -b BROKER -g made -p {"type":"CUSTOMIZED","customizedRetryPolicy":{"next":[1000]}}`, []string{"success"}},
		{"deleteSubGroup -c DefaultCluster -g made -r true", []string{"delete subscription group [made] from broker [BROKER] success."}},
		{"deleteTopic -c DefaultCluster -t made", []string{"delete topic [made] from BROKER success."}},
		{"resetOffsetByTime -g billing -t created -s now", []string{"#brokerName", "broker-a"}},
		{"resetOffsetByTime -g billing -t created -s 2020-01-31#12:00:00:000", []string{"broker-a"}},
		{"resetOffsetByTime -g billing -t created -s -1 -b BROKER -q 1 -o 1", []string{"broker-a     1         1"}},
		{"startOffset -g nobody-yet -t created", []string{"#start", "consume"}},
		{"cloneGroupOffset -s billing -d audit -t created -o true", []string{"success"}},
		{"consumerProgress -g audit", []string{"#Consumer Offset", "created", "Consume Diff Total: 0"}},
		{"consumerProgress -g audit -t created -s true", []string{"#Client IP"}},
		{"consumerProgress", []string{"#Diff Total", "billing", "OFFLINE"}},
		{"producerConnection -g shop -t created", []string{"#ClientId", "GO", "V5_5_0"}},
		{"queryMsgById -i OFFSETID -t created", []string{"OFFSETID", "UNIQUE", "[eu]", "[7]", "text: hello", "NOT_ONLINE"}},
		{"queryMsgById -i UNIQUE -t created", []string{"OFFSETID"}},
		{"queryMsgByUniqueKey -i UNIQUE -t created", []string{"OFFSETID", "Queue Offset:        0"}},
		{"queryMsgByUniqueKey -i UNIQUE -t created -a", []string{"OFFSETID"}},
		{"queryMsgByKey -t created -k 7", []string{"#Message ID", "UNIQUE"}},
		{"queryMsgByKey -t created -k 7 -b 0 -e 9999999999999 -m 2", []string{"UNIQUE"}},
		{"queryMsgByOffset -t created -b broker-a -i 1 -o 0", []string{"OFFSETID", "text: hello"}},
		{"brokerStatus -b BROKER", []string{"bootTimestamp", "msgPutTotalTodayNow"}},
		{"getBrokerConfig -c DefaultCluster", []string{"brokerName", "=  broker-a"}},
		{"updateBrokerConfig -b BROKER -k shortPollingTimeMills -v 1234", []string{"update broker config success, BROKER"}},
		{"getConsumerConfig -g billing", []string{"retryMaxTimes", "=  16"}},
		{"setConsumeMode -b BROKER -t created -g billing -m PULL", []string{"set consume mode to BROKER success."}},
		{"brokerConsumeStats -b BROKER", []string{"#Group", "billing", "Diff Total: 0"}},
		{"brokerConsumeStats -b BROKER -l 0", []string{"created"}},
		{"producer -b BROKER", []string{"shop", "GO"}},
		{"haStatus -b BROKER", []string{"#SlaveNum\t0"}},
		{"queryCq -t created -q 1 -i 0", []string{"#PhysicOffset", "0 "}},
		{"topicClusterList -t created", []string{"DefaultCluster"}},
		{"updateTopicPerm -c DefaultCluster -t created -p 4", []string{"update topic perm to R-- in BROKER success."}},
		{"updateTopicPerm -b BROKER -t created -p 6", []string{"RW-"}},
		{"cleanUnusedTopic", []string{"success, BROKER"}},
		{"cleanExpiredCQ -c DefaultCluster", []string{"success, BROKER"}},
		{"deleteExpiredCommitLog -b BROKER", []string{"success, BROKER"}},
		{"skipAccumulatedMessage -g billing -t created", []string{"#offset", "broker-a     1         1"}},
		{"updateOrderConf -m put -t created -v broker-a:2", []string{"orderConf=[broker-a:2]"}},
		{"updateOrderConf -m get -t created", []string{"orderConf=[broker-a:2]"}},
		{"updateKvConfig -s SPACE -k key -v value", []string{"success"}},
		{"getNamesrvConfig", []string{"listenPort"}},
		{"updateNamesrvConfig -k orderMessageEnable -v true", []string{"success"}},
		{"deleteKvConfig -s SPACE -k key", []string{"success"}},
		{"updateOrderConf -m delete -t created", []string{"success"}},
		{"wipeWritePerm -b broker-a", []string{"wipe write perm of broker[broker-a] in name server["}},
		{"addWritePerm -b broker-a", []string{"add write perm of broker[broker-a]"}},
	} {
		eventually(t, func() string { // the index and the producer's heartbeat come a little later
			code, out, errs := command(t, l.args(k.line)...)
			for _, want := range k.want {
				if !strings.Contains(out, l.words.Replace(want)) || code != exitDone {
					return k.line + ": exit code " + strings.Repeat("x", code) + ", no " + l.words.Replace(want) +
						" in\n" + out + errs
				}
			}
			return ""
		})
		if strings.HasPrefix(k.line, "delete") { // it is gone by now
			continue
		}
		out := must(t, l.args(k.line, "--json")...)
		for line := range strings.Lines(out) {
			var v map[string]any
			if err := json.Unmarshal([]byte(line), &v); err != nil || len(v) == 0 {
				t.Errorf("%s --json: %v in %q", k.line, err, line)
			}
		}
		if out == "" {
			t.Errorf("%s --json prints nothing", k.line)
		}
	}
}

// eventually repeats a check until it returns nothing, for 15 s.
func eventually(t *testing.T, check func() string) {
	t.Helper()
	limit := time.NewTimer(15 * time.Second)
	defer limit.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		wrong := check()
		if wrong == "" {
			return
		}
		select {
		case <-limit.C:
			t.Error(wrong)
			return
		case <-tick.C:
		}
	}
}

// TestAdminConnection: the members of a group, and a message given to one of them.
func TestAdminConnection(t *testing.T) {
	t.Parallel()
	l := newAdminLab(t)
	c := l.cluster.Client(t)
	k, err := c.NewConsumer("billing", client.WithSubscription("created", client.Tags("eu")))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- k.Run(ctx, func(context.Context, *client.Received) error { return nil })
	}()
	eventually(t, func() string {
		code, out, errs := command(t, l.args("consumerConnection -g billing")...)
		for _, want := range []string{"#ClientId", c.ID(), "created", "eu", "CLUSTERING"} {
			if code != exitDone || !strings.Contains(out, want) {
				return "no " + want + " in\n" + out + errs
			}
		}
		return ""
	})
	var v struct{ Members []struct{ Version string } }
	out := must(t, l.args("consumerConnection -g billing --json")...)
	if err := json.Unmarshal([]byte(out), &v); err != nil || len(v.Members) != 1 || v.Members[0].Version != "V5_5_0" {
		t.Errorf("%v in %s", err, out)
	}
	for _, k := range [][2]string{
		{"consumerStatus -g billing", "#LastPull"},
		{"consumerStatus -g billing -s -i " + c.ID(), "goroutine"},
		{"queryMsgById -i OFFSETID -g billing -d " + c.ID(), "CR_SUCCESS"},
		{"queryMsgByUniqueKey -i UNIQUE -t created -g billing -d " + c.ID(), "CR_SUCCESS"},
		{"consumerProgress -s true -g billing -t created", strings.Split(c.ID(), "@")[0]},
		{"consumerProgress", "CONSUME_PASSIVELY"},
	} {
		eventually(t, func() string { // it holds its queues and has committed a little later
			code, out, errs := command(t, l.args(k[0])...)
			if code != exitDone || !strings.Contains(out, k[1]) {
				return k[0] + ": no " + k[1] + " in\n" + out + errs
			}
			return ""
		})
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestAdminFailures: exit codes and words of what cannot be done.
func TestAdminFailures(t *testing.T) {
	t.Parallel()
	l := newAdminLab(t)
	for line, want := range map[string]struct {
		code int
		text string
	}{
		"updateTopicPerm -t created -b BROKER -p 0":               {exitMisuse, "--perm"},
		"updateTopicPerm -t absent -b BROKER -p 4":                {exitFailed, "'updateTopic' creates one"},
		"getConsumerConfig -g absent":                             {exitFailed, "'updateSubGroup' creates one"},
		"setConsumeMode -b BROKER -t created -g billing -m SHOVE": {exitMisuse, "PULL or POP"},
		"consumerStatus -g absent":                                {exitFailed, "not online"},
		"updateOrderConf -t created -m get":                       {exitFailed, "No config item"},
		"updateOrderConf -t created -m set":                       {exitMisuse, "put, get or delete"},
		"updateNamesrvConfig -k kvConfigPath -v x":                {exitFailed, "16"},
		"queryCq -t created -q 1":                                 {exitMisuse, "--index"},
		"updateTopik":                                             {exitMisuse, `did you mean "updateTopic"?`},
		"updateTopic -b BROKER":                                   {exitMisuse, "--topic is required"},
		"updateTopic -t x":                                        {exitMisuse, "name a broker (-b) or a cluster (-c)"},
		"updateTopic -t x -b BROKER -c y":                         {exitMisuse, "not both"},
		"updateTopic -t x -b BROKER -p 9":                         {exitMisuse, "--perm is 9"},
		"updateTopic -t x -b BROKER -o y":                         {exitMisuse, "want true or false"},
		"updateTopic -t x -b BROKER -a y":                         {exitMisuse, "+name=value"},
		"updateTopic -t x/y -b BROKER":                            {exitMisuse, "x/y"},
		"updateTopic -t x -c absent":                              {exitFailed, "'clusterList'"},
		"updateTopic -t x -b 127.0.0.1:1":                         {exitFailed, "reached"},
		"topicRoute -t absent":                                    {exitFailed, "'updateTopic' creates one"},
		"topicStatus -t absent":                                   {exitFailed, "absent"},
		"updateSubGroup -g x -b BROKER -p y":                      {exitMisuse, "groupRetryPolicy"},
		"consumerConnection -g absent":                            {exitFailed, "not online"},
		"producerConnection -g absent":                            {exitFailed, "not exist"},
		"queryMsgById -i xyz":                                     {exitMisuse, "characters"},
		"queryMsgByUniqueKey -i xyz -t created":                   {exitFailed, "check topic, key"},
		"queryMsgByKey -k absent -t created":                      {exitFailed, "check topic, key"},
		"queryMsgByKey -k 7 -t created -b noon":                   {exitMisuse, "milliseconds"},
		"queryMsgByOffset -t created -b broker-a -i 1 -o 5":       {exitFailed, "TopicStatus"},
		"queryMsgByOffset -t created -b broker-a -i 1":            {exitMisuse, "--offset"},
		"resetOffsetByTime -g billing -t created -s noon":         {exitMisuse, "noon"},
		"resetOffsetByTime -g billing -t created -s now -q 1":     {exitMisuse, "go together"},
		"resetOffsetByTime -g absent -t absent -s now":            {exitFailed, "absent"},
		"updateBrokerConfig -b BROKER -k brokerConfigPath -v x":   {exitFailed, "16"},
		"clusterList --timeout-ms 0":                              {exitMisuse, "--timeout-ms"},
		"queryMsgByUniqueKey -i UNIQUE -t created -g billing":     {exitMisuse, "go together"},
		"queryMsgByUniqueKey -i UNIQUE -t created -g x -d nobody": {exitFailed, "not online"},
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			eventually(t, func() string {
				code, out, errs := command(t, l.args(line)...)
				if code != want.code || !strings.Contains(errs, want.text) {
					return out + errs + "\nwant exit code and text " + want.text
				}
				return ""
			})
		})
	}
	code, _, errs := command(t, "admin", "clusterList", "-n", "127.0.0.1:1")
	if code != exitFailed || !strings.Contains(errs, "check the name server addresses") {
		t.Errorf("without a name server: exit code %d, %s", code, errs)
	}
	code, _, errs = command(t, "admin", "getNamesrvConfig", "-n", "127.0.0.1:1")
	if code != exitFailed || !strings.Contains(errs, "configuration at 127.0.0.1:1") {
		t.Errorf("without a name server: exit code %d, %s", code, errs)
	}
}

// TestGroupTexts: what getConsumerConfig prints is what updateSubGroup takes.
func TestGroupTexts(t *testing.T) {
	t.Parallel()
	for _, want := range []admin.RetryPolicy{
		{},
		{Delays: []time.Duration{time.Second, 5 * time.Second}},
		{Initial: time.Second, Max: time.Minute, Multiplier: 2},
	} {
		text := retryPolicyText(want)
		got, err := retryPolicy(text)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", text, err, diff)
		}
	}
	if got := attributesText(map[string]string{"c": "d", "a": "b"}); got != "a=b,c=d" {
		t.Errorf("attributes: got %q", got)
	}
}
