// SPDX-License-Identifier: Apache-2.0

// Package delay makes messages wait: it moves those that ask for a delay into the topic in which they
// wait (Rules, RocketMQ's HookUtils.handleScheduleMessage), and delivers those of the delay levels
// when they are due (Service, RocketMQ's ScheduleMessageService).
//
// A message with a delay level waits in SCHEDULE_TOPIC_XXXX, in the queue of its level, and the tags
// code of its unit says when it is due. The Service is a consumer of these queues with a position for
// each: it sleeps until the first message of any level is due, appends what is due to its real topic
// in batches, and moves on. docs/delivery.md says what it promises.
package delay
