// SPDX-License-Identifier: Apache-2.0

package protocol

// UserInfo is the body of the user codes.
type UserInfo struct {
	Password   string `json:"password,omitempty"`
	UserStatus string `json:"userStatus,omitempty"` // enable, disable
	UserType   string `json:"userType,omitempty"`   // Super, Normal
	Username   string `json:"username,omitempty"`
}

// ACLInfo is the body of the ACL codes.
type ACLInfo struct {
	Policies []ACLPolicy `json:"policies"`
	Subject  string      `json:"subject,omitempty"`
}

// ACLPolicy is a list of rules.
type ACLPolicy struct {
	Entries    []ACLEntry `json:"entries"`
	PolicyType string     `json:"policyType,omitempty"` // Custom, Default
}

// ACLEntry is one rule.
type ACLEntry struct {
	Actions   []string `json:"actions"`
	Decision  string   `json:"decision,omitempty"` // Allow, Deny
	Resource  string   `json:"resource,omitempty"`
	SourceIPs []string `json:"sourceIps"`
}
