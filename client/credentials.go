// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"crypto/hmac"
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/skylarkmq/skylark/net/invoke"
	"github.com/skylarkmq/skylark/net/remoting"
)

// Credentials sign requests (RocketMQ's ACL). SecurityToken is only for temporary keys.
type Credentials struct{ AccessKey, SecretKey, SecurityToken string }

// CredentialsProvider gives the credentials for a request. It is asked for each one, so keys can
// rotate; it may be called from several goroutines at once and should answer from memory, since the
// request waits for it. An error fails the request before anything is sent.
type CredentialsProvider interface {
	Credentials(ctx context.Context) (Credentials, error)
}

// StaticCredentials is a CredentialsProvider that always gives the same.
type StaticCredentials Credentials

// Credentials implements CredentialsProvider.
func (c StaticCredentials) Credentials(context.Context) (Credentials, error) {
	return Credentials(c), nil
}

// Fields that a signed request and one with a zone carry (AclConstants and MixAll of RocketMQ).
const (
	fieldAccessKey     = "AccessKey"
	fieldSecurityToken = "SecurityToken"
	fieldSignature     = "Signature"
	fieldZoneName      = "__ZONE_NAME"
	fieldZoneMode      = "__ZONE_MODE"
)

// field is one that is added to a header.
type field struct{ name, value string }

// extended is a header with further fields.
type extended struct {
	remoting.Header // nil: none
	extra           []field
}

// AppendFields implements remoting.Header.
func (h *extended) AppendFields(e *remoting.Encoder) {
	if h.Header != nil {
		h.Header.AppendFields(e)
	}
	for _, f := range h.extra {
		e.String(f.name, f.value)
	}
}

// prepares reports whether requests need more than their own fields.
func (c *config) prepares() bool { return c.credentials != nil || len(c.zone) > 0 }

// prepare adds the zone and signs.
func (c *Client) prepare(ctx context.Context, _ string, r *invoke.Request) error {
	h := &extended{Header: r.Header, extra: c.cfg.zone}
	r.Header = h
	if c.cfg.credentials == nil {
		return nil
	}
	keys, err := c.askCredentials(ctx)
	if err != nil {
		return fmt.Errorf("asking for credentials: %w", err)
	}
	if keys.AccessKey == "" || keys.SecretKey == "" {
		return fmt.Errorf("credentials without access key or secret key: %w", ErrPermission)
	}
	h.extra = append(slices.Clip(h.extra), field{fieldAccessKey, keys.AccessKey})
	if keys.SecurityToken != "" {
		h.extra = append(h.extra, field{fieldSecurityToken, keys.SecurityToken})
	}
	signature, err := sign(h, r, keys.SecretKey)
	if err != nil {
		return err
	}
	h.extra = append(h.extra, field{fieldSignature, signature})
	return nil
}

// askCredentials asks the user's provider; a panic is an error.
func (c *Client) askCredentials(ctx context.Context) (keys Credentials, err error) {
	defer func() {
		if v := recover(); v != nil {
			c.cfg.logger.Error("panic in a credentials provider", "err", v, "stack", string(debug.Stack()))
			err = fmt.Errorf("the provider panicked: %v", v)
		}
	}()
	return c.cfg.credentials.Credentials(ctx)
}

// sign is base64(HMAC-SHA1(secret, field values in order of their names, then the body)), as in
// RocketMQ's AclUtils.
func sign(h remoting.Header, r *invoke.Request, secret string) (string, error) {
	// One encoding in the cheaper form gives the field values exactly as they will be sent.
	e := remoting.Begin(nil, remoting.Head{Code: 0, Serialize: remoting.Binary})
	h.AppendFields(&e)
	frame := e.End(nil)
	var cmd remoting.Command
	if err := cmd.Decode(frame[4:]); err != nil {
		return "", errors.Join(errors.New("signing a request"), err)
	}
	fields := slices.Clone(cmd.Fields)
	slices.SortFunc(fields, func(a, b remoting.Field) int {
		return slices.Compare(a.Name, b.Name)
	})
	mac := hmac.New(sha1.New, []byte(secret))
	for _, f := range fields {
		mac.Write(f.Value)
	}
	mac.Write(r.Body)
	for _, b := range r.Bodies {
		mac.Write(b)
	}
	return base64.StdEncoding.EncodeToString(mac.Sum(nil)), nil
}
