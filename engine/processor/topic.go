// SPDX-License-Identifier: Apache-2.0

// UPDATE_AND_CREATE_TOPIC (17) and its list (18), GET_ALL_TOPIC_CONFIG (21), DELETE_TOPIC_IN_BROKER
// (215), QUERY_TOPIC_CONSUME_BY_WHO (300), GET_SYSTEM_TOPIC_LIST_FROM_BROKER (305),
// CLEAN_UNUSED_TOPIC (316), QUERY_TOPICS_BY_CONSUMER (343) and GET_TOPIC_CONFIG (351), after
// RocketMQ's AdminBrokerProcessor. 18 goes on behind an unchanged topic, where the reference stops.
// UPDATE_AND_CREATE_STATIC_TOPIC (513) is refused: there are no static topics here.

package processor

import (
	"slices"
	"strings"

	"github.com/skylarkmq/skylark/engine/topic"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

const (
	// pageMax bounds one page of topics or groups (splitMetadataSize).
	pageMax = 2000
	// topicQueuesMax bounds a topic's queue counts: clients make a list as long as they say.
	topicQueuesMax = 65536
)

// Topics answers administrators about topics.
type Topics struct{ *Leaves }

// Register adds the request codes.
func (p *Topics) Register(t Cold) {
	t[remoting.UpdateAndCreateTopic] = onHeader(
		func(_ *Caller, r *protocol.CreateTopicRequest) Reply {
			if err := p.Update(r); err != nil {
				return Fail(err)
			}
			return Reply{Remark: notSet}
		})
	t[remoting.UpdateAndCreateTopicList] = onBody(
		func(_ *Caller, r *protocol.TopicConfigList) Reply {
			if err := p.UpdateAll(r); err != nil {
				return Fail(err)
			}
			return Reply{Remark: notSet}
		})
	t[remoting.UpdateAndCreateStaticTopic] = func(*Caller, *remoting.Command) Reply {
		return Fail(remoting.Errorf(remoting.SystemError, "static topics are not supported"))
	}
	t[remoting.GetAllTopicConfig] = onHeader(
		func(_ *Caller, r *protocol.PageRequest) Reply {
			total, wrapper := p.Page(r)
			return Reply{
				Header: &protocol.TotalTopicsResponse{TotalTopicNum: total},
				Body:   protocol.Marshal(wrapper),
			}
		})
	t[remoting.DeleteTopicInBroker] = onHeader(
		func(_ *Caller, r *protocol.DeleteTopicRequest) Reply { return done(p.Delete(r.Topic)) })
	t[remoting.QueryTopicConsumeByWho] = onHeader(
		func(_ *Caller, r *protocol.TopicRequest) Reply {
			return Reply{Body: protocol.Marshal(protocol.GroupList{GroupList: p.GroupsOf(r.Topic)})}
		})
	t[remoting.GetSystemTopicListFromBroker] = func(*Caller, *remoting.Command) Reply {
		return Reply{Body: protocol.Marshal(protocol.TopicList{TopicList: p.Topics.SystemNames()})}
	}
	t[remoting.CleanUnusedTopic] = func(*Caller, *remoting.Command) Reply { return done(p.Clean()) }
	t[remoting.QueryTopicsByConsumer] = onHeader(
		func(_ *Caller, r *protocol.GroupRequest) Reply {
			list := protocol.TopicList{
				BrokerAddr: p.BrokerAddr, TopicList: append([]string{}, p.Offsets.Topics(r.Group)...),
			}
			return Reply{Body: protocol.Marshal(list)}
		})
	t[remoting.GetTopicConfig] = onHeader(
		func(_ *Caller, r *protocol.TopicConfigRequest) Reply { return jsonReply(p.Config(r.Topic)) })
}

// Update creates or changes one topic. It returns when the table is on disk.
func (p *Topics) Update(r *protocol.CreateTopicRequest) error {
	attributes, err := topic.ParseAttributes(r.Attributes)
	if err != nil {
		return err
	}
	c := &protocol.TopicConfig{
		TopicName: r.Topic, ReadQueueNums: r.ReadQueueNums, WriteQueueNums: r.WriteQueueNums,
		Perm: r.Perm, TopicFilterType: r.TopicFilterType, TopicSysFlag: r.TopicSysFlag,
		Order: r.Order, Attributes: attributes,
	}
	if err := p.check(c); err != nil {
		return err
	}
	return p.Topics.Put(c)
}

// UpdateAll creates or changes topics with one write of the table; one bad topic refuses them all.
func (p *Topics) UpdateAll(r *protocol.TopicConfigList) error {
	if len(r.TopicConfigList) == 0 {
		return remoting.Errorf(remoting.InvalidParameter, "the field topicConfigList is missing")
	}
	for i, c := range r.TopicConfigList {
		if c == nil {
			return remoting.Errorf(remoting.InvalidParameter, "topicConfigList[%d] is null", i)
		}
		if err := p.check(c); err != nil {
			return err
		}
	}
	return p.Topics.PutAll(r.TopicConfigList)
}

func (p *Topics) check(c *protocol.TopicConfig) error {
	if err := protocol.ValidTopic([]byte(c.TopicName)); err != nil {
		return err
	}
	if p.Topics.IsSystem(c.TopicName) {
		return conflict(c.TopicName)
	}
	if err := p.ordinary(c.TopicName); err != nil {
		return err
	}
	if c.TopicFilterType != protocol.SingleTag && c.TopicFilterType != protocol.MultiTag {
		return remoting.Errorf(remoting.SystemError,
			"topicFilterType [%s] is not SINGLE_TAG or MULTI_TAG", c.TopicFilterType)
	}
	for _, n := range [...]int32{c.ReadQueueNums, c.WriteQueueNums} {
		if n < 0 || n > topicQueuesMax {
			return remoting.Errorf(remoting.InvalidParameter,
				"readQueueNums or writeQueueNums is %d, not 0 to %d", n, topicQueuesMax)
		}
	}
	mixed := c.Attributes["+"+topic.AttributeMessageType] == "MIXED" ||
		c.Attributes[topic.AttributeMessageType] == "MIXED"
	if mixed && !p.MixedMessageType {
		return remoting.Errorf(remoting.InvalidParameter, "MIXED message type is not supported.")
	}
	return nil
}

func conflict(name string) error {
	return remoting.Errorf(remoting.InvalidParameter,
		"The topic[%s] is conflict with system topic.", name)
}

// Page returns a part of the table, sorted by name, and the number of topics in all. A request
// without paging fields gets everything. A version that is not the table's begins at the start.
func (p *Topics) Page(r *protocol.PageRequest) (int32, protocol.TopicConfigWrapper) {
	all, version := p.Topics.All()
	table := all
	if r.Paged {
		table = page(all, pageStart(r, version), r.MaxNum)
	}
	mapping := protocol.DataVersion{Timestamp: p.BootTime.UnixMilli()}
	return int32(len(all)), protocol.TopicConfigWrapper{
		TopicConfigTable: table, DataVersion: version, MappingDataVersion: &mapping,
		MappingDetails: map[string]*protocol.TopicQueueMappingDetail{},
		MappingInfos:   map[string]*protocol.TopicQueueMappingInfo{},
	}
}

// pageStart is where a page begins: at the asked place only if the asker saw the same version.
func pageStart(r *protocol.PageRequest, version protocol.DataVersion) int32 {
	var seen protocol.DataVersion
	if r.DataVersion == "" || protocol.Unmarshal([]byte(r.DataVersion), &seen) != nil ||
		!seen.Equal(version) {
		return 0
	}
	return max(r.Seq, 0)
}

// page cuts size entries out of a table that is sorted by name.
func page[V any](all map[string]V, from, size int32) map[string]V {
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	if size < 0 || size > pageMax {
		size = pageMax
	}
	cut := map[string]V{}
	first := min(int(from), len(names))
	for _, name := range names[first:min(first+int(size), len(names))] {
		cut[name] = all[name]
	}
	return cut
}

// Delete removes a topic with everything that belongs to it, and the pop retry topics that groups
// have for it. The configuration goes first, so that nothing new is stored; offsets of every kind
// follow, so that a topic that is made anew under the name begins at its start. A topic that does
// not exist is no error.
func (p *Topics) Delete(name string) error {
	if strings.TrimSpace(name) == "" {
		return remoting.Errorf(remoting.InvalidParameter, "The specified topic is blank.")
	}
	if p.Topics.IsSystem(name) {
		return conflict(name)
	}
	if err := p.ordinary(name); err != nil {
		return err
	}
	for _, group := range p.Offsets.Groups(name) {
		for _, mark := range [...]string{"_", "+"} {
			if retry := protocol.RetryPrefix + group + mark + name; p.exists(retry) {
				if err := p.deleteOne(retry); err != nil {
					return err
				}
			}
		}
	}
	return p.deleteOne(name)
}

func (p *Topics) exists(name string) bool {
	_, ok := p.Topics.Find(name)
	return ok
}

func (p *Topics) deleteOne(name string) error {
	known := p.exists(name)
	if err := p.Topics.Delete(name); err != nil {
		return err
	}
	p.Offsets.RemoveTopic(name)
	// Positions that a death brings back would have groups pass over messages of a topic made anew.
	if err := p.Offsets.Persist(); err != nil {
		return err
	}
	p.Stats.RemoveTopic(name)
	// A name that nobody knows must not reach the file system.
	if known || slices.Contains(p.Store.Topics(), name) {
		if err := p.Store.DeleteTopic(name); err != nil {
			return err
		}
	}
	if p.TopicDeleted != nil {
		p.TopicDeleted(name)
	}
	return nil
}

// Clean deletes the queues of topics that have no configuration. System topics and light queues
// stay.
func (p *Topics) Clean() error {
	for _, name := range p.Store.Topics() {
		if p.exists(name) || p.Topics.IsSystem(name) || p.Topics.Static(name) ||
			strings.HasPrefix(name, protocol.LMQPrefix) {
			continue
		}
		if err := p.deleteOne(name); err != nil {
			return err
		}
	}
	return nil
}

// GroupsOf lists the groups that read a topic: those that subscribe it now and those that have
// offsets of it, sorted.
func (p *Topics) GroupsOf(name string) []string {
	groups := append(p.Members.GroupsOf(name), p.Offsets.Groups(name)...)
	slices.Sort(groups)
	return append([]string{}, slices.Compact(groups)...)
}

// Config returns one topic's configuration.
func (p *Topics) Config(name string) (*protocol.TopicConfig, error) {
	c, ok := p.Topics.Find(name)
	if !ok {
		return nil, remoting.Errorf(remoting.TopicNotExist, "No topic in this broker. topic: %s", name)
	}
	return c, nil
}
