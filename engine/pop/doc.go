// SPDX-License-Identifier: Apache-2.0

// Package pop keeps what pop consumption needs beyond a queue's offset: which messages are out with a
// consumer and until when, in what order a group reads, and who waits for messages.
//
// What is out is written down in RocketMQ's form, so that a broker of either kind can go on: a pop
// stores a checkpoint (PopCheckPoint) for the topic rmq_sys_REVIVE_LOG_<cluster>, an
// acknowledgement stores an AckMsg or a BatchAckMsg for it. Both are timer messages and come into
// that topic when the messages are due: the checkpoint a second before, the acknowledgements then.
// The same is kept in memory, which decides while the process lives: when the invisible time of a
// message is over it is copied to the group's retry topic, and the copy and its acknowledgement are
// one append, so no death of the process comes between them.
//
// After a start memory is empty. Checkpoints and acknowledgements then come out of the revive topic,
// whose reader begins behind the committed offset of CID_RMQ_SYS_REVIVE_GROUP; that offset never
// passes a checkpoint whose messages are not all acknowledged.
//
// Ordered pops have no checkpoints; their state is Orders and the file consumerOrderInfo.json.
package pop
