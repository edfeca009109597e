// SPDX-License-Identifier: Apache-2.0

package filter

import (
	"sync"
	"sync/atomic"

	"github.com/dgraph-io/ristretto/v2"

	"github.com/skylarkmq/skylark/engine/sqlfilter"
)

const (
	// cacheCounters is how many texts the cache counts the use of, about 3 bytes each.
	cacheCounters = 16384
	// cacheTickerSeconds keeps the cache from looking for expired entries, of which it has none.
	cacheTickerSeconds = 1 << 30
)

// compiled is what came of one text: an expression, or why it is none.
type compiled struct {
	text       string
	expression *sqlfilter.Expression
	err        error
}

// cache keeps compiled expressions by text, bounded by their bytes: a pull may carry its own, and so
// does each pull after it. It is made at the first use, so that a broker without SQL92 has none.
type cache struct {
	bytes int64

	made   atomic.Pointer[ristretto.Cache[string, compiled]]
	mu     sync.Mutex // guards making and closing
	closed bool
}

// compile returns the expression of a text. Any goroutine may call it.
func (c *cache) compile(text string) (*sqlfilter.Expression, error) {
	store := c.store()
	if store != nil {
		if found, ok := store.Get(text); ok && found.text == text {
			return found.expression, found.err
		}
	}
	e, err := sqlfilter.Compile(text)
	size := 256 + 2*len(text)
	if err == nil {
		size = e.Memory()
	}
	if store != nil {
		store.Set(text, compiled{text, e, err}, int64(size))
	}
	return e, err
}

func (c *cache) store() *ristretto.Cache[string, compiled] {
	if made := c.made.Load(); made != nil {
		return made
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.made.Load() == nil && !c.closed {
		made, err := ristretto.NewCache(&ristretto.Config[string, compiled]{
			NumCounters: cacheCounters, MaxCost: c.bytes, BufferItems: 64,
			TtlTickerDurationInSec: cacheTickerSeconds,
		})
		if err == nil { // it only refuses zeros, which are not given
			c.made.Store(made)
		}
	}
	return c.made.Load()
}

// close ends the cache's goroutines. Expressions are compiled each time afterwards.
func (c *cache) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if made := c.made.Swap(nil); made != nil {
		made.Close()
	}
}
