// SPDX-License-Identifier: Apache-2.0

package skylark.interop;

import com.alibaba.fastjson2.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;

/** DefaultMQPushConsumer, each with a list of what its listener got. */
final class PushConsumers {
    private final Handles<Running> handles = new Handles<>();

    void register(Map<String, Main.Op> ops) {
        ops.put("push.start", this::start);
        ops.put("push.await", a -> handles.get(a).await(a.number("count", 1), a.number("timeoutMs", 20_000)));
        ops.put("push.queues", a -> Texts.queues(handles.get(a).consumer.getDefaultMQPushConsumerImpl()
            .getRebalanceImpl().getProcessQueueTable().keySet()));
        ops.put("push.clientId", a -> handles.get(a).consumer.getDefaultMQPushConsumerImpl().getmQClientFactory().getClientId());
        ops.put("push.subscribe", a -> {
            handles.get(a).consumer.subscribe(a.text("topic"), a.text("expression", "*"));
            return null;
        });
        ops.put("push.stop", a -> {
            handles.remove(a).stop();
            return null;
        });
    }

    /** One consumer and its messages, in the order of the listener's calls. */
    private static final class Running {
        final DefaultMQPushConsumer consumer;
        final List<JSONObject> got = new ArrayList<>(); // guarded by this
        volatile DefaultMQProducer replier; // null: messages are not answered

        Running(DefaultMQPushConsumer consumer) {
            this.consumer = consumer;
        }

        synchronized void add(List<MessageExt> messages) {
            messages.forEach(m -> {
                JSONObject o = Texts.received(m);
                o.put("thread", Thread.currentThread().getName());
                got.add(o);
            });
            notifyAll();
        }

        void reply(List<MessageExt> messages, String text) {
            if (replier == null) {
                return;
            }
            for (MessageExt m : messages) {
                try {
                    replier.send(MessageUtil.createReplyMessage(m, (text + new String(m.getBody(), StandardCharsets.UTF_8)).getBytes(StandardCharsets.UTF_8)), 10_000);
                } catch (Exception e) {
                    e.printStackTrace(); // the requester's time will be over
                }
            }
        }

        void stop() {
            consumer.shutdown();
            if (replier != null) {
                replier.shutdown();
            }
        }

        /** Answers all messages so far when there are at least count of them, or when the time is over. */
        synchronized List<JSONObject> await(int count, int timeoutMs) throws InterruptedException {
            long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(timeoutMs);
            for (long left = timeoutMs; got.size() < count && left > 0; left = TimeUnit.NANOSECONDS.toMillis(end - System.nanoTime())) {
                wait(left);
            }
            return new ArrayList<>(got);
        }
    }

    /**
     * Arguments: group, topic or topics, expression or sql, orderly, broadcast, from (first or last),
     * failures (how often each message is refused before it is taken), threads, pullBatch, reply (answers
     * each message with this text and the message's body).
     */
    private Object start(Args a) throws Exception {
        DefaultMQPushConsumer c = a.configure(new DefaultMQPushConsumer(a.text("group")));
        c.setConsumeFromWhere("last".equals(a.text("from", "first"))
            ? ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET : ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        c.setMessageModel(a.flag("broadcast") ? MessageModel.BROADCASTING : MessageModel.CLUSTERING);
        int threads = a.number("threads", 4);
        c.setConsumeThreadMin(threads);
        c.setConsumeThreadMax(threads);
        c.setPullBatchSize(a.number("pullBatch", 32));
        c.setMaxReconsumeTimes(a.number("maxReconsume", -1));
        // By default a stop interrupts the listeners' threads, and the client can lose a refused message: when
        // the interrupt meets ProcessQueue.containsMessage, that says no, the message is not sent back, its place
        // in the process queue is given up all the same, and the position behind it may still be committed.
        c.setAwaitTerminationMillisWhenShutdown(10_000);
        if (a.flag("pop")) {
            c.setClientRebalance(false); // the broker says which queues, and whether to pop
            c.setPopInvisibleTime(a.big("invisibleMs", 60_000));
            c.setPopBatchNums(a.number("pullBatch", 32));
        }
        List<String> topics = a.has("topics") ? a.texts("topics") : List.of(a.text("topic"));
        for (String topic : topics) {
            if (a.has("sql")) {
                c.subscribe(topic, MessageSelector.bySql(a.text("sql")));
            } else {
                c.subscribe(topic, a.text("expression", "*"));
            }
        }
        Running running = new Running(c);
        DefaultMQProducer replier = null;
        if (a.has("reply")) {
            replier = a.configure(new DefaultMQProducer(a.text("group") + "_REPLY"));
            replier.setInstanceName(c.getInstanceName() + "R");
            replier.start();
            running.replier = replier;
        }
        int failures = a.number("failures", 0);
        Map<String, Integer> calls = new ConcurrentHashMap<>();
        if (a.flag("orderly")) {
            c.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                running.add(messages);
                context.setSuspendCurrentQueueTimeMillis(100);
                return calls.merge(messages.get(0).getMsgId(), 1, Integer::sum) <= failures
                    ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT : ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            c.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                running.add(messages);
                running.reply(messages, a.text("reply", ""));
                return calls.merge(messages.get(0).getMsgId(), 1, Integer::sum) <= failures
                    ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        c.start();
        return handles.add(running);
    }
}
