// SPDX-License-Identifier: Apache-2.0

package nameserver

// REGISTER_BROKER. The body is decoded on the loop when it is small and plain. A large one goes to
// a worker, and so do those that follow it on the connection, so that they are applied in order;
// the table is changed on the loop, where it is known whether the connection still stands.

import (
	"net/netip"
	"strings"

	"github.com/skylarkmq/skylark/nameserver/route"
	"github.com/skylarkmq/skylark/net/eventloop"
	"github.com/skylarkmq/skylark/net/protocol"
	"github.com/skylarkmq/skylark/net/remoting"
)

// inlineBody is the size in bytes up to which a body is decoded on the loop.
const inlineBody = 64 << 10

// inline reports whether a body is quickly decoded. A deflated one may be large when unpacked.
func inline(body []byte) bool {
	return len(body) == 0 || (len(body) <= inlineBody && body[0] != zlibMark)
}

const zlibMark = 0x78 // first byte of a zlib stream

func (h *handler) register(c *eventloop.Conn, cmd *remoting.Command) {
	l := h.link(c)
	if l.decoding == 0 && inline(cmd.Body) {
		r, err := decodeRegistration(cmd)
		h.apply(c, l, cmd, r, err)
		return
	}
	owned, ref := cmd.Clone(), c.Ref()
	ok := h.s.bodies.submit(func() {
		r, err := decodeRegistration(owned)
		ref.Post(&registerTask{h, l, owned, r, err})
	})
	if !ok {
		send(c, cmd, busy())
		return
	}
	l.decoding++
}

// registerTask brings a decoded registration back to the loop.
type registerTask struct {
	h   *handler
	l   *link
	cmd *remoting.Command
	r   *route.Registration
	err error
}

func (t *registerTask) Run(c *eventloop.Conn) {
	if c == nil {
		return // the connection is gone, and with it what it registers
	}
	t.l.decoding--
	t.h.apply(c, t.l, t.cmd, t.r, t.err)
}

// apply enters a registration and answers it.
func (h *handler) apply(
	c *eventloop.Conn, l *link, cmd *remoting.Command, r *route.Registration, err error,
) {
	if err != nil {
		h.s.tellRefused(c, err)
		send(c, cmd, refused(err))
		return
	}
	s := h.s
	r.Session, r.NowMS = l.session, nowMS()
	s.enter(l.session, c.Ref())
	result, events, err := s.table.Register(r)
	if err != nil {
		send(c, cmd, failed(remoting.SystemError, "register broker failed"))
		return
	}
	if result.First {
		s.cfg.Log.Info("broker registered", "broker", r.Broker.Name, "id", r.Broker.ID,
			"addr", r.Broker.Addr, "cluster", r.Broker.Cluster)
		if unreachable(r.Broker.Addr, c.RemoteAddr().Addr()) {
			s.cfg.Log.Warn("broker registers an address that others cannot reach, see brokerIP1",
				"broker", r.Broker.Name, "addr", r.Broker.Addr, "from", c.RemoteAddr().String())
		}
	}
	s.handle(events)
	a := answer{empty: true}
	if result.MasterAddr != "" {
		a.fields = []field{{"haServerAddr", result.HAAddr}, {"masterAddr", result.MasterAddr}}
	}
	if s.settings.Load().ReturnOrderConfig {
		if table, ok := s.kv.list(protocol.OrderTopicNamespace); ok {
			a.body = kvBody(table)
		}
	}
	send(c, cmd, a)
}

// tellRefused logs a refused registration, at most one a second: peers can send as many as they like.
func (s *Server) tellRefused(c *eventloop.Conn, err error) {
	now, last := nowMS(), s.refusedMS.Load()
	if now-last < 1000 || !s.refusedMS.CompareAndSwap(last, now) {
		s.refused.Add(1)
		return
	}
	s.cfg.Log.Warn("registration refused", "addr", c.RemoteAddr().String(), "err", err,
		"suppressed", s.refused.Swap(0))
}

// unreachable reports whether a broker that speaks from another host names an address that has a
// meaning on its own host only.
func unreachable(registered string, from netip.Addr) bool {
	if from.Unmap().IsLoopback() {
		return false
	}
	at, err := netip.ParseAddrPort(registered)
	if err != nil {
		return false // a host name
	}
	host := at.Addr().Unmap()
	return host.IsUnspecified() || host.IsLoopback() || host.IsLinkLocalUnicast()
}

// decodeRegistration reads header and body. Errors are *remoting.Error.
func decodeRegistration(cmd *remoting.Command) (*route.Registration, error) {
	var h protocol.RegisterBrokerRequest
	if err := h.Decode(cmd); err != nil {
		return nil, err
	}
	for _, f := range []field{{"brokerName", h.BrokerName}, {"brokerAddr", h.BrokerAddr}} {
		if strings.TrimSpace(f.value) == "" {
			return nil, remoting.Errorf(remoting.SystemError, "the field %s is blank", f.name)
		}
	}
	if h.BodyCRC32 != 0 && h.BodyCRC32 != protocol.BodyCRC(cmd.Body) {
		return nil, remoting.Errorf(remoting.SystemError, "crc32 not match")
	}
	body, err := protocol.DecodeRegisterBroker(cmd.Body, cmd.Version)
	if err != nil {
		return nil, remoting.Errorf(remoting.SystemError, "the body is no RegisterBrokerBody: %v", err)
	}
	return &route.Registration{
		Broker: route.Broker{
			Cluster: h.ClusterName, Name: h.BrokerName, Addr: h.BrokerAddr, ID: h.BrokerID,
		},
		HAAddr:       h.HAServerAddr,
		Zone:         h.ZoneName,
		TimeoutMS:    h.HeartbeatTimeoutMS,
		ActingMaster: h.EnableActingMaster,
		Version:      body.TopicConfigs.DataVersion,
		Topics:       body.TopicConfigs.TopicConfigTable,
		Mappings:     body.TopicConfigs.MappingInfos,
		Filters:      body.FilterServerList,
	}, nil
}
