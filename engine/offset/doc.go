// SPDX-License-Identifier: Apache-2.0

// Package offset keeps how far each consumer group has read each queue, and the file
// consumerOffset.json.
//
// Commit, Query and the pull and reset calls are on the path of a pull: they take one short read
// lock and allocate nothing once a queue is known. The file is written a while after the first
// change, so an idle broker writes nothing and runs no timer; Close writes what is left.
//
// The table does not know which groups, topics and queues exist. Whoever deletes one calls
// RemoveTopic or RemoveGroup.
package offset
