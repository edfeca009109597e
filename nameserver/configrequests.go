// SPDX-License-Identifier: Apache-2.0

package nameserver

// PUT_KV_CONFIG, GET_KV_CONFIG, DELETE_KV_CONFIG, GET_KVLIST_BY_NAMESPACE and
// UPDATE_NAMESRV_CONFIG. Changes run on the files worker and are answered when they are on disk;
// the reference answers before. A write that fails is an answer with its error, and no change.

import (
	"github.com/skylarkmq/skylark/engine/settings"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
	"github.com/skylarkmq/skylark/storage/vfs"
)

// maxConfigBody bounds the properties text of an update.
const maxConfigBody = 1 << 20

const noKey = "namespace or key is null"

func (s *Server) putKV(cmd *remoting.Command) answer {
	v, err := required(cmd, "namespace", "key")
	if err != nil {
		return failed(remoting.SystemError, noKey)
	}
	value, err := required(cmd, "value")
	if err != nil {
		return refused(err)
	}
	if err := s.kv.put(v[0], v[1], value[0]); err != nil {
		s.cfg.Log.Error("key-value configuration not saved", "path", s.kv.path, "err", err)
		return refused(err)
	}
	return answer{}
}

func (s *Server) deleteKV(cmd *remoting.Command) answer {
	v, err := required(cmd, "namespace", "key")
	if err != nil {
		return failed(remoting.SystemError, noKey)
	}
	if err := s.kv.remove(v[0], v[1]); err != nil {
		s.cfg.Log.Error("key-value configuration not saved", "path", s.kv.path, "err", err)
		return refused(err)
	}
	return answer{}
}

func (s *Server) getKV(cmd *remoting.Command) answer {
	v, err := required(cmd, "namespace", "key")
	if err != nil {
		return failed(remoting.SystemError, noKey)
	}
	value, ok := s.kv.get(v[0], v[1])
	if !ok {
		a := failed(remoting.QueryNotFound, "No config item, Namespace: %s Key: %s", v[0], v[1])
		a.empty = true
		return a
	}
	return answer{fields: []field{{"value", value}}}
}

func (s *Server) listKV(cmd *remoting.Command) answer {
	v, err := required(cmd, "namespace")
	if err != nil {
		return refused(err)
	}
	table, ok := s.kv.list(v[0])
	if !ok {
		return failed(remoting.QueryNotFound, "No config item, Namespace: %s", v[0])
	}
	return answer{body: kvBody(table)}
}

func kvBody(table map[string]string) []byte {
	return protocol.Marshal(&protocol.KVTable{Table: table})
}

// updateConfig changes settings at run time. Paths, addresses and black-listed keys are refused
// before anything else is looked at, whether they mean something here or not.
func (s *Server) updateConfig(cmd *remoting.Command) answer {
	const unreadable = "string2Properties error"
	if len(cmd.Body) == 0 || len(cmd.Body) > maxConfigBody {
		return failed(remoting.SystemError, unreadable)
	}
	file, err := settings.Parse("update", cmd.Body)
	if err != nil || len(file.Entries) == 0 {
		return failed(remoting.SystemError, unreadable)
	}
	next := *s.settings.Load()
	for _, e := range file.Entries {
		if next.fixed(e.Key) {
			return failed(remoting.NoPermission, "Can not update config in black list.")
		}
	}
	set, err := settings.Update(&next, file)
	if err != nil {
		return refused(err)
	}
	if len(set) == 0 {
		return answer{}
	}
	text := settings.Format(settings.Values(&next))
	if err := vfs.WriteFileAtomic(s.cfg.ConfigStorePath, text); err != nil {
		s.cfg.Log.Error("configuration not saved", "path", s.cfg.ConfigStorePath, "err", err)
		return refused(err)
	}
	s.settings.Store(&next)
	s.table.SetRules(next.rules())
	s.cfg.Log.Info("configuration changed", "keys", set)
	return answer{}
}
