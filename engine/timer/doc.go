// SPDX-License-Identifier: Apache-2.0

// Package timer delivers messages at any time that their producers name (RocketMQ's
// TimerMessageStore).
//
// A message with a delivery time waits in the topic rmq_sys_wheel_timer. The Service reads that
// topic and files each message under the second in which it is due: a unit of 52 bytes goes to the
// timer log, and a slot of the timer wheel points to the last unit of its second, which points to
// the one before. When a second comes its units are read back, sorted by the exact time that their
// records name, and delivered. Wheel, log and checkpoint have RocketMQ's files and layout, so a Java
// broker can take over in the middle and the reverse; docs/timer.md says what differs and what is
// promised.
//
// In memory there is one bit for each slot, and the messages of the second that is being delivered.
package timer
