// SPDX-License-Identifier: Apache-2.0

package topic

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/skylarkmq/skylark/net/protocol"
)

// mappingFile says which queues of other brokers continue those of a static topic (RocketMQ
// TopicQueueMappingManager). It is only read here, and never written.
const mappingFile = "topicQueueMapping.json"

// loadStatic reads the names of static topics. Their queue ids and offsets in requests are logical
// ones, which this broker cannot translate: answered with its own they would be wrong without a word.
func loadStatic(dir string) (map[string]bool, error) {
	var first error
	for _, path := range []string{
		filepath.Join(dir, mappingFile), filepath.Join(dir, mappingFile+".bak"),
	} {
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var f struct {
			Mappings map[string]*protocol.TopicQueueMappingDetail `json:"topicQueueMappingInfoMap"`
		}
		if err == nil && len(data) > 0 {
			if err = protocol.Unmarshal(data, &f); err == nil {
				return names(f.Mappings), nil
			}
		}
		if err == nil {
			err = errors.New("it is empty")
		}
		first = errors.Join(first, fmt.Errorf("topic: load %s: %w", path, err))
	}
	return nil, first
}

func names[V any](m map[string]V) map[string]bool {
	set := make(map[string]bool, len(m))
	for name := range m {
		set[name] = true
	}
	return set
}

// Unserved says why clients cannot use a topic that RocketMQ left in the store, "" when they can.
// What is stored of it stays as it is. It takes no lock and allocates nothing for other topics.
func (t *Table) Unserved(c *protocol.TopicConfig) string {
	switch {
	case len(t.static) > 0 && t.static[c.TopicName]:
		return "topic " + c.TopicName + " is a static topic (" + mappingFile + "), which this broker " +
			"keeps but does not serve"
	case len(c.Attributes) > 0 && c.Attributes["cleanup.policy"] == "COMPACTION":
		return "topic " + c.TopicName + " has cleanup.policy COMPACTION, which this broker keeps but " +
			"does not serve"
	}
	return ""
}

// Static tells whether a name is one of a static topic.
func (t *Table) Static(name string) bool { return len(t.static) > 0 && t.static[name] }

// sayUnserved tells the operator once, at the start.
func (t *Table) sayUnserved() {
	all := t.current.Load().topics
	var list []string
	for name, c := range all {
		if t.Unserved(c) != "" {
			list = append(list, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(t.static)) {
		if all[name] == nil {
			list = append(list, name)
		}
	}
	if slices.Sort(list); len(list) > 0 {
		t.cfg.Notice("static or compaction topics are kept and not served", "topic", list)
	}
}
