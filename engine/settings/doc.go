// SPDX-License-Identifier: Apache-2.0

// Package settings reads configuration files in Java's properties form, checks them against a
// struct of known keys and writes the values in force back as text.
//
// A configuration is a struct whose fields carry the key they are set by and the values they take:
//
//	type Config struct {
//		BrokerName string `key:"brokerName" important:"true"`
//		BrokerID   int64  `key:"brokerId" min:"0"`
//		FlushDisk  string `key:"flushDiskType" oneof:"ASYNC_FLUSH,SYNC_FLUSH"`
//	}
//
//	file, err := settings.Load("broker.conf")
//	report, err := settings.Apply(&cfg, file, keysOfOtherReleases)
//
// Nothing is half applied: a file with one bad line changes no field. A key that only another
// release knew is reported by name, any other unknown key is an error with its line and the
// nearest known name. This differs from RocketMQ, which ignores unknown keys (MixAll
// properties2Object), so that a misspelt key can no longer leave a default in force unseen.
//
// The package imports nothing of this module. It lives under engine because the top-level folders
// are fixed; the name server is its second user and the one other package that may import it.
// All functions may be called from any goroutine; the caller guards the struct it passes.
package settings
