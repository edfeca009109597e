// SPDX-License-Identifier: Apache-2.0

// UPDATE_BROKER_CONFIG (25), GET_BROKER_CONFIG (26), CLEAN_EXPIRED_CONSUMEQUEUE (306),
// DELETE_EXPIRED_COMMITLOG (329), CHECK_ROCKSDB_CQ_WRITE_PROGRESS (354), EXCHANGE_BROKER_HA_INFO (906), GET_BROKER_HA_STATUS (907), GET_BROKER_EPOCH_CACHE (1007)
// and the cold-data codes (2001 to 2004), after RocketMQ's AdminBrokerProcessor, for a master
// without slaves and without cold-data control. What only speeds up
// housekeeping is accepted without effect: the store removes expired files on its own.

package processor

import (
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

// Admin answers administrators about the broker as a whole.
type Admin struct{ *Leaves }

// Register adds the request codes.
func (p *Admin) Register(t Cold) {
	nothing := func(*Caller, *remoting.Command) Reply { return Reply{} }
	t[remoting.UpdateBrokerConfig] = func(_ *Caller, cmd *remoting.Command) Reply {
		return done(p.UpdateConfig(string(cmd.Body)))
	}
	t[remoting.GetBrokerConfig] = func(*Caller, *remoting.Command) Reply { return p.config() }
	t[remoting.GetBrokerRuntimeInfo] = func(*Caller, *remoting.Command) Reply {
		return Reply{Body: protocol.Marshal(protocol.KVTable{Table: p.Runtime()})}
	}
	t[remoting.CleanExpiredConsumeQueue] = func(*Caller, *remoting.Command) Reply {
		return done(p.Store.CleanQueues())
	}
	t[remoting.DeleteExpiredCommitLog] = func(*Caller, *remoting.Command) Reply {
		p.Store.DeleteExpired()
		return Reply{}
	}
	t[remoting.CheckRocksDBCQWriteProgress] = unsupported("RocksDB consume queues are")
	t[remoting.ExportRocksDBConfigToJSON] = unsupported("RocksDB configuration is")
	t[remoting.ExchangeBrokerHAInfo] = unsupported("replication is")
	t[remoting.ResetMasterFlushOffset] = unsupported("replication is")
	t[remoting.GetBrokerHAStatus] = func(*Caller, *remoting.Command) Reply {
		return Reply{Body: protocol.Marshal(p.HAStatus())}
	}
	t[remoting.GetBrokerEpochCache] = func(*Caller, *remoting.Command) Reply {
		return Fail(remoting.Errorf(remoting.SystemError,
			"this request only for controllerMode "))
	}
	t[remoting.UpdateColdDataFlowCtrConfig] = unsupported("cold data flow control is")
	t[remoting.RemoveColdDataFlowCtrConfig] = nothing // nothing is configured
	t[remoting.GetColdDataFlowCtrInfo] = func(*Caller, *remoting.Command) Reply {
		return Reply{Body: protocol.Marshal(coldInfo{
			RuntimeTable: map[string]string{}, ConfigTable: map[string]int64{},
		})}
	}
	t[remoting.SetCommitLogReadMode] = onHeader(
		func(_ *Caller, r *protocol.ReadModeRequest) Reply { return done(p.setReadMode(r)) })
}

// unsupported refuses a request for something this broker does not have.
func unsupported(what string) Func {
	return func(*Caller, *remoting.Command) Reply {
		return Fail(remoting.Errorf(remoting.SystemError, "%s not supported by this broker", what))
	}
}

// UpdateConfig changes values from key=value lines. No text is no change.
func (p *Admin) UpdateConfig(text string) error {
	if text == "" {
		return nil
	}
	return p.Settings.Update(text)
}

func (p *Admin) config() Reply {
	text, version := p.Settings.Text()
	return Reply{
		Header: &protocol.BrokerConfigResponse{Version: string(protocol.Marshal(version))},
		Body:   []byte(text),
	}
}

// HAStatus is the replication state of a master that nobody follows.
func (p *Admin) HAStatus() protocol.HARuntimeInfo {
	return protocol.HARuntimeInfo{
		HAClientRuntimeInfo:      &protocol.HAClientRuntimeInfo{},
		HAConnectionInfo:         []protocol.HAConnectionInfo{},
		Master:                   true,
		MasterCommitLogMaxOffset: int64(p.Store.Info().Wrote),
	}
}

// coldInfo is the answer to GET_COLD_DATA_FLOW_CTR_INFO.
type coldInfo struct {
	RuntimeTable            map[string]string `json:"runtimeTable"`
	ConfigTable             map[string]int64  `json:"configTable"`
	CGColdReadThreshold     int64             `json:"cgColdReadThreshold"`
	GlobalColdReadThreshold int64             `json:"globalColdReadThreshold"`
	GlobalAcc               int64             `json:"globalAcc"`
}

// setReadMode accepts the normal mode, which is the only one.
func (p *Admin) setReadMode(r *protocol.ReadModeRequest) error {
	switch {
	case !r.HasMode:
		return remoting.Errorf(remoting.SystemError, "set commitlog readahead mode param error")
	case r.Mode == 0:
		return nil
	case r.Mode == 1:
		return remoting.Errorf(remoting.SystemError,
			"random read ahead mode is not supported by this broker")
	}
	return remoting.Errorf(remoting.InvalidParameter,
		"set commitlog readahead mode param value error")
}
