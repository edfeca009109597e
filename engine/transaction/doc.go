// SPDX-License-Identifier: Apache-2.0

// Package transaction keeps the half messages of transactions: it ends them when their producers
// say how, and asks the producers that do not say.
//
// A half message is a record of RMQ_SYS_TRANS_HALF_TOPIC, what became of it is noted by a record of
// RMQ_SYS_TRANS_OP_HALF_TOPIC, and the positions in both are consumer offsets of CID_RMQ_SYS_TRANS,
// all in RocketMQ's form (TransactionalMessageServiceImpl, TransactionalMessageBridge), so a broker
// of either kind goes on with what the other left. What is in memory is a function of these.
//
// Kept: the checks of an end, the properties, the order of check times, the limits. Better here:
//
//   - The op record is stored in one step with the committed message, not up to 3 s later, so a kill
//     does not have a message checked and delivered again that was ended already.
//   - An end that comes twice delivers once.
//   - The first check comes when transactionTimeOut is over and not with the next round after it.
//   - A check counts only when a producer was there to be asked. While none is, the message waits
//     where it is, for transactionCheckMax times the rounds of RocketMQ or longer, up to the time
//     that files are kept.
//   - Messages with an immunity time wait in memory and are not copied to the end of their queue
//     in each round.
//
// What a kill leaves at each step, and what can be delivered twice, is in docs/transactions.md.
//
// Nothing runs and nothing is held in memory while there is no half message. The cost is one bit
// test for each half message that was ended in time, one read for each that was not, and one copy
// for each check.
package transaction
