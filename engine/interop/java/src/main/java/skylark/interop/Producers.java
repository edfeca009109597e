// SPDX-License-Identifier: Apache-2.0

package skylark.interop;

import com.alibaba.fastjson2.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** DefaultMQProducer, one handle each. */
final class Producers {
    private final Handles<DefaultMQProducer> handles = new Handles<>();

    void register(Map<String, Main.Op> ops) {
        ops.put("producer.start", this::start);
        ops.put("producer.send", this::send);
        ops.put("producer.batch", this::batch);
        ops.put("producer.many", this::many);
        ops.put("producer.transaction", this::transaction);
        ops.put("producer.recall", a -> handles.get(a).recallMessage(a.text("topic"), a.text("recallHandle")));
        ops.put("producer.transactions", this::transactions);
        ops.put("producer.checks", a -> ((Deciding) ((TransactionMQProducer) handles.get(a)).getTransactionListener()).checks());
        ops.put("producer.request", a -> received(handles.get(a).request(Texts.message(a), a.number("ttlMs", 5_000))));
        ops.put("producer.queues", a -> Texts.queues(handles.get(a).fetchPublishMessageQueues(a.text("topic"))));
        ops.put("producer.clientId", a -> handles.get(a).getDefaultMQProducerImpl().getMqClientFactory().getClientId());
        ops.put("producer.stop", a -> {
            handles.remove(a).shutdown();
            return null;
        });
    }

    private Object start(Args a) throws Exception {
        DefaultMQProducer p = a.configure(a.flag("transactional")
            ? new TransactionMQProducer(a.text("group")) : new DefaultMQProducer(a.text("group")));
        if (p instanceof TransactionMQProducer) {
            ((TransactionMQProducer) p).setTransactionListener(new Deciding());
        }
        p.setSendMsgTimeout(15_000);
        p.setRetryTimesWhenSendFailed(a.number("retries", 2));
        p.setMaxMessageSize(a.number("maxMessageSize", 4 << 20));
        p.setCompressMsgBodyOverHowmuch(a.number("compressOver", 4096));
        if (a.has("compression")) {
            p.setCompressType(CompressionType.of(a.text("compression")));
        }
        p.start();
        return handles.add(p);
    }

    /** mode: sync (default), async, oneway; with queueId to that queue, with orderKey by its hash. */
    private Object send(Args a) throws Exception {
        DefaultMQProducer p = handles.get(a);
        Message m = Texts.message(a);
        MessageQueue queue = a.queue();
        switch (a.text("mode", "sync")) {
            case "sync":
                if (queue != null) {
                    return Texts.sent(p.send(m, queue));
                }
                return Texts.sent(a.has("orderKey") ? p.send(m, new SelectMessageQueueByHash(), a.text("orderKey")) : p.send(m));
            case "async":
                CompletableFuture<SendResult> done = new CompletableFuture<>();
                SendCallback callback = new Completing(done);
                if (queue != null) {
                    p.send(m, queue, callback);
                } else {
                    p.send(m, callback);
                }
                return Texts.sent(done.get(20, TimeUnit.SECONDS));
            case "oneway":
                if (queue != null) {
                    p.sendOneway(m, queue);
                } else {
                    p.sendOneway(m);
                }
                return null;
            default:
                throw new IllegalArgumentException("mode " + a.text("mode"));
        }
    }

    private Object batch(Args a) throws Exception {
        List<Message> messages = new ArrayList<>();
        a.list("messages").forEach(m -> messages.add(Texts.message(m)));
        MessageQueue queue = a.queue();
        DefaultMQProducer p = handles.get(a);
        return Texts.sent(queue == null ? p.send(messages) : p.send(messages, queue));
    }

    /** Sends count messages "prefix0", "prefix1", ... one after the other; answers each result. */
    private Object many(Args a) throws Exception {
        DefaultMQProducer p = handles.get(a);
        List<JSONObject> out = new ArrayList<>();
        for (int i = 0; i < a.number("count", 0); i++) {
            String body = a.text("prefix") + i;
            Message m = new Message(a.text("topic"), a.text("tags", null), body, body.getBytes(StandardCharsets.UTF_8));
            MessageQueue queue = a.queue();
            JSONObject sent = Texts.sent(queue == null ? p.send(m) : p.send(m, queue));
            sent.put("body", body);
            out.add(sent);
        }
        return out;
    }

    private Object transaction(Args a) throws Exception {
        return Texts.sent(((TransactionMQProducer) handles.get(a)).sendMessageInTransaction(Texts.message(a), null));
    }

    /** Sends count half messages "prefix0", "prefix1", ...; the local transaction of each ends as the properties say. */
    private Object transactions(Args a) throws Exception {
        List<JSONObject> out = new ArrayList<>();
        for (int i = 0; i < a.number("count", 0); i++) {
            String body = a.text("prefix") + i;
            Message m = new Message(a.text("topic"), a.text("tags", null), body, body.getBytes(StandardCharsets.UTF_8));
            a.map("properties").forEach(m::putUserProperty);
            JSONObject sent = Texts.sent(((TransactionMQProducer) handles.get(a)).sendMessageInTransaction(m, null));
            sent.put("body", body);
            out.add(sent);
        }
        return out;
    }

    private static JSONObject received(Message m) {
        return Texts.received((MessageExt) m);
    }

    private static final class Completing implements SendCallback {
        private final CompletableFuture<SendResult> done;

        Completing(CompletableFuture<SendResult> done) {
            this.done = done;
        }

        @Override
        public void onSuccess(SendResult result) {
            done.complete(result);
        }

        @Override
        public void onException(Throwable e) {
            done.completeExceptionally(e);
        }
    }

    /** The user property "local" says how a local transaction ends, "check" how a check of it does; default is commit. */
    private static final class Deciding implements TransactionListener {
        private final List<JSONObject> checks = new ArrayList<>(); // guarded by this

        @Override
        public LocalTransactionState executeLocalTransaction(Message m, Object arg) {
            return state(m.getUserProperty("local"));
        }

        @Override
        public synchronized LocalTransactionState checkLocalTransaction(MessageExt m) {
            checks.add(Texts.received(m));
            return state(m.getUserProperty("check"));
        }

        synchronized List<JSONObject> checks() {
            return new ArrayList<>(checks);
        }

        private static LocalTransactionState state(String word) {
            switch (word == null ? "commit" : word) {
                case "commit":
                    return LocalTransactionState.COMMIT_MESSAGE;
                case "rollback":
                    return LocalTransactionState.ROLLBACK_MESSAGE;
                case "unknown":
                    return LocalTransactionState.UNKNOW;
                default:
                    throw new IllegalStateException(word);
            }
        }
    }
}
