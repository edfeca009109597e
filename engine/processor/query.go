// SPDX-License-Identifier: Apache-2.0

// QUERY_MESSAGE (12) and VIEW_MESSAGE_BY_ID (33), as in RocketMQ's QueryMessageProcessor. Kept:
// limits, remarks, the index's last update in the answer. Left out: index types other than the
// files' (`indexType` T asks for the tag keys that the files hold too).

package processor

import (
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/record"
	"github.com/skylarkmq/skylark/zerocopy"
)

// Query answers look-ups of single messages. Its functions read the log and may wait for the disk.
type Query struct {
	Store      *storage.Store
	DefaultMax int // results of a unique-key query
	AnswerMax  int // bytes of one answer
}

// Register adds the request codes of Query to t.
func (q *Query) Register(t Cold) {
	t[remoting.QueryMessage] = q.queryMessage
	t[remoting.ViewMessageByID] = q.viewMessage
}

func (q *Query) queryMessage(_ *Caller, cmd *remoting.Command) Reply {
	var req protocol.QueryMessageRequest
	if err := req.Decode(cmd); err != nil {
		return Fail(err)
	}
	res, body, err := q.Messages(&req)
	if err != nil {
		return Fail(err)
	}
	if len(body) == 0 {
		return Reply{
			Code: remoting.QueryNotFound, Header: &protocol.QueryMessageResponse{}, // zeros, as seen
			Remark: "can not find message, maybe time range not correct",
		}
	}
	return Reply{Body: body, Header: &protocol.QueryMessageResponse{
		IndexLastUpdateTimestamp: res.LastUpdateMS, IndexLastUpdatePhyOffset: int64(res.LastUpdateAt),
	}}
}

// Messages finds records by key. The bytes are a copy.
func (q *Query) Messages(req *protocol.QueryMessageRequest) (storage.QueryResult, []byte, error) {
	limit := int(req.MaxNum)
	if req.UniqueKeyQuery {
		limit = q.DefaultMax
	}
	key := req.Key
	if req.IndexType == "T" {
		key = "T#" + key // the index files keep tags under topic#T#tags
	}
	res, err := q.Store.Query(req.Topic, key, limit, req.BeginTimestamp, req.EndTimestamp)
	if err != nil {
		return res, nil, err
	}
	body, err := q.copyOut(res.Regions)
	return res, body, err
}

// copyOut reads regions into one body and releases them all, whatever happens.
func (q *Query) copyOut(regions []zerocopy.Region) ([]byte, error) {
	defer func() {
		for i := range regions {
			regions[i].Release()
		}
	}()
	if err := q.Store.Warm(regions); err != nil {
		return nil, err
	}
	var body []byte
	for i := range regions {
		if len(body)+regions[i].Size > q.AnswerMax {
			break
		}
		body = append(body, regions[i].Mem...)
	}
	return body, nil
}

func (q *Query) viewMessage(_ *Caller, cmd *remoting.Command) Reply {
	var req protocol.ViewMessageRequest
	if err := req.Decode(cmd); err != nil {
		return Fail(err)
	}
	body, err := q.Message(record.PhysicalOffset(req.Offset))
	if err != nil {
		return Reply{
			Code:   remoting.SystemError,
			Remark: remoting.Errorf(0, "can not find message by the offset, %d", req.Offset).Remark,
		}
	}
	return Reply{Body: body}
}

// Message copies the record at a physical offset.
func (q *Query) Message(at record.PhysicalOffset) ([]byte, error) {
	region, err := q.Store.RecordAt(at)
	if err != nil {
		return nil, err
	}
	return q.copyOut([]zerocopy.Region{region})
}
