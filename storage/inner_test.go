// SPDX-License-Identifier: Apache-2.0

package storage_test

import (
	"strconv"

	"github.com/skylarkmq/skylark/storage/record"
)

// batchTopic is the topic of the tests whose queues are batch queues.
const batchTopic = "T2"

// innerDraft is an inner batch of n messages.
func innerDraft(queue int32, n int, body []byte) record.Draft {
	d := draft(batchTopic, queue, "the batch", "")
	d.Body = body
	d.SysFlag |= record.SysInnerBatch | record.SysNeedUnwrap
	d.Properties = record.AppendProperty(d.Properties, "INNER_NUM", strconv.Itoa(n))
	return d
}

// innerTexts returns the bodies of the messages in an inner batch.
func innerTexts(v record.View) (list []string, err error) {
	for r := record.NewBatchReader(v.Body()); ; {
		_, body, _, ok := r.Next()
		if !ok {
			return list, r.Err()
		}
		list = append(list, string(body))
	}
}
