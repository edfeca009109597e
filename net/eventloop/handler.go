// SPDX-License-Identifier: Apache-2.0

package eventloop

import "github.com/skylarkmq/skylark/net/remoting"

// Handler is what a loop serves. Each loop has its own, and all calls come one at a time: on the
// loop's goroutine, or under its lock with the net backend. No method may block.
type Handler interface {
	// Open tells of a new connection. What is written to it goes out after the call.
	Open(c *Conn)
	// Command hands over one frame. The command and everything it points to are borrowed until the
	// next ReadDone returns, so that all frames of one turn can be handled together there; what is
	// needed longer is copied. By then its connection may have been closed.
	Command(c *Conn, cmd *remoting.Command)
	// ReadDone ends a turn, a series of Command calls of one or several connections: all complete
	// frames that had arrived were handed over, or 128 of them. What was written is sent after it.
	ReadDone()
	// Close tells that the connection is gone, exactly once for each Open. Its Value is still
	// there, writing to it does nothing. cause is io.EOF when the peer hung up.
	Close(c *Conn, cause error)
}

// Task is work for the loop that owns a connection.
type Task interface {
	// Run is called on the owning loop; c is nil when the connection is gone, for which the task
	// should still release what it holds. What it writes is sent after all waiting tasks have run.
	// It must not block. After the server was closed it may run on the poster's goroutine, but
	// never at the same time as another task of that loop.
	Run(c *Conn)
}

// Posted is a task and the connection it is for.
type Posted struct {
	To   Ref
	Task Task
}

// Ref names a connection for good: it is a comparable value, safe to keep, copy and use from any
// goroutine, and never comes to mean another connection. The zero Ref names none.
type Ref struct {
	loop *Loop
	slot uint32
	gen  uint32
}

// Loop returns the loop that owns the connection, nil for the zero Ref.
func (r Ref) Loop() *Loop { return r.loop }

// Post has t run on the loop that owns the connection, soon and after what was posted before. It
// does not block. On the zero Ref the task is run here and at once, without a connection.
func (r Ref) Post(t Task) {
	if r.loop == nil {
		t.Run(nil)
		return
	}
	r.loop.post(Posted{To: r, Task: t})
}
