// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"strings"

	"github.com/skylarkmq/skylark/net/remoting"
)

// missing is the answer to a request without a field that is needed to act on it.
func missing(name string) *remoting.Error {
	return remoting.Errorf(remoting.SystemError, "the field %s is missing", name)
}

// illTyped is the answer to a field that is not what its type says.
func illTyped[N string | []byte](name N, value []byte, want string) *remoting.Error {
	return remoting.Errorf(remoting.SystemError, "the field %s is %.64q, not %s", name, value, want)
}

// parseInt32 and parseInt64 set v, or return the refusal.
func parseInt32[N string | []byte](name N, value []byte, v *int32) *remoting.Error {
	n, ok := remoting.ParseInt(value)
	if !ok || int64(int32(n)) != n {
		return illTyped(name, value, "a 32-bit number")
	}
	*v = int32(n)
	return nil
}

func parseInt64[N string | []byte](name N, value []byte, v *int64) *remoting.Error {
	n, ok := remoting.ParseInt(value)
	if !ok {
		return illTyped(name, value, "a 64-bit number")
	}
	*v = n
	return nil
}

// parseBool is Boolean.parseBoolean: true in any case is true, the rest is false.
func parseBool(value []byte) bool {
	return len(value) == 4 && strings.EqualFold(string(value), "true")
}

// reader takes fields out of a command one by one and keeps the first refusal. It serves the
// headers that are not hot.
type reader struct {
	fields remoting.Fields
	err    *remoting.Error
}

func fieldsOf(c *remoting.Command) *reader { return &reader{fields: c.Fields} }

// result returns the refusal as an error, nil when there is none.
func (r *reader) result() error {
	if r.err == nil {
		return nil
	}
	return r.err
}

func (r *reader) keep(err *remoting.Error) {
	if r.err == nil {
		r.err = err
	}
}

// text returns a field that must be there, optText one that may be absent.
func (r *reader) text(name string) string {
	v, ok := r.fields.Get(name)
	if !ok {
		r.keep(missing(name))
	}
	return string(v)
}

func (r *reader) optText(name string) string {
	v, _ := r.fields.Get(name)
	return string(v)
}

func (r *reader) int32(name string) (n int32) {
	v, ok := r.fields.Get(name)
	if !ok {
		r.keep(missing(name))
		return 0
	}
	r.keep(parseInt32(name, v, &n))
	return n
}

// optInt32 returns absent when the field is not there, or empty as in some binary headers.
func (r *reader) optInt32(name string, absent int32) int32 {
	if v, ok := r.fields.Get(name); ok && len(v) > 0 {
		r.keep(parseInt32(name, v, &absent))
	}
	return absent
}

func (r *reader) int64(name string) (n int64) {
	v, ok := r.fields.Get(name)
	if !ok {
		r.keep(missing(name))
		return 0
	}
	r.keep(parseInt64(name, v, &n))
	return n
}

func (r *reader) optInt64(name string, absent int64) int64 {
	if v, ok := r.fields.Get(name); ok && len(v) > 0 {
		r.keep(parseInt64(name, v, &absent))
	}
	return absent
}

func (r *reader) has(name string) bool {
	v, ok := r.fields.Get(name)
	return ok && len(v) > 0
}

// bool returns false for an absent field; optBool tells absence apart.
func (r *reader) bool(name string) bool {
	v, _ := r.fields.Get(name)
	return parseBool(v)
}

func (r *reader) optBool(name string) *bool {
	v, ok := r.fields.Get(name)
	if !ok {
		return nil
	}
	b := parseBool(v)
	return &b
}

// The functions below write optional fields: nothing for "", for a negative number, for nil.

func optString(e *remoting.Encoder, name, value string) {
	if value != "" {
		e.String(name, value)
	}
}

func optBytes(e *remoting.Encoder, name string, value []byte) {
	if value != nil {
		e.Bytes(name, value)
	}
}

func optInt(e *remoting.Encoder, name string, value int64) {
	if value >= 0 {
		e.Int(name, value)
	}
}

func optBool(e *remoting.Encoder, name string, value *bool) {
	if value != nil {
		e.Bool(name, *value)
	}
}
