// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"slices"
	"strings"

	"github.com/skylarkmq/skylark/net/remoting"
)

// Expression types of a subscription (RocketMQ's ExpressionType).
const (
	ExpressionTag   = "TAG"
	ExpressionSQL92 = "SQL92"

	// SubscribeAll is the tag expression that takes everything.
	SubscribeAll = "*"
)

// SubscriptionData is one topic's subscription, in heartbeats and many other bodies.
type SubscriptionData struct {
	ClassFilterMode bool     `json:"classFilterMode"` // obsolete
	CodeSet         []int32  `json:"codeSet"`         // JavaHash of each tag
	ExpressionType  string   `json:"expressionType,omitempty"`
	SubString       string   `json:"subString,omitempty"`
	SubVersion      int64    `json:"subVersion"` // milliseconds; nanoseconds from the Go client
	TagsSet         []string `json:"tagsSet"`    // empty: all
	Topic           string   `json:"topic,omitempty"`
}

// IsTag reports whether the subscription filters by tags; an absent type means so.
func (s *SubscriptionData) IsTag() bool { return IsTagType(s.ExpressionType) }

// IsTagType reports whether an expression type stands for tags.
func IsTagType[T string | []byte](exprType T) bool {
	return len(exprType) == 0 || string(exprType) == ExpressionTag
}

// ParseSubscription builds a subscription from an expression, as RocketMQ's FilterAPI does.
//
// A tag expression is * or tags joined by ||; nothing stands for *. Any other type keeps the text,
// which must not be empty and is not compiled here. SubVersion stays 0: the caller has the clock.
// The error is a *remoting.Error with SubscriptionParseFailed.
func ParseSubscription(topic, expr, exprType string) (SubscriptionData, error) {
	s := SubscriptionData{
		Topic: topic, SubString: expr, ExpressionType: ExpressionTag,
		CodeSet: []int32{}, TagsSet: []string{},
	}
	if !IsTagType(exprType) {
		s.ExpressionType = exprType
		if expr == "" {
			return SubscriptionData{}, remoting.Errorf(remoting.SubscriptionParseFailed,
				"Expression can't be null! %s", exprType)
		}
		return s, nil
	}
	if expr == "" || expr == SubscribeAll {
		s.SubString = SubscribeAll
		return s, nil
	}
	if strings.Trim(expr, "|") == "" && len(expr)%2 == 0 {
		// Java's split gives nothing at all for an expression of separators only.
		return SubscriptionData{}, remoting.Errorf(remoting.SubscriptionParseFailed,
			"subString split error")
	}
	seen := make(map[string]bool) // the text is as long as the peer likes
	for tag := range strings.SplitSeq(expr, "||") {
		tag = strings.TrimSpace(tag)
		if tag == "" || seen[tag] {
			continue
		}
		seen[tag] = true
		s.TagsSet = append(s.TagsSet, tag)
		s.CodeSet = append(s.CodeSet, JavaHash([]byte(tag)))
	}
	slices.Sort(s.CodeSet)
	s.CodeSet = slices.Compact(s.CodeSet) // tags may share a hash
	return s, nil
}
