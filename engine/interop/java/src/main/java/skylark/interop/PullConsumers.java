// SPDX-License-Identifier: Apache-2.0

package skylark.interop;

import com.alibaba.fastjson2.JSONObject;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** DefaultMQPullConsumer ("pull") and DefaultLitePullConsumer ("lite"). */
final class PullConsumers {
    private final Handles<DefaultMQPullConsumer> pulls = new Handles<>();
    private final Handles<DefaultLitePullConsumer> lites = new Handles<>();

    void register(Map<String, Main.Op> ops) {
        registerPull(ops);
        registerLite(ops);
    }

    private void registerPull(Map<String, Main.Op> ops) {
        ops.put("pull.start", a -> {
            DefaultMQPullConsumer c = a.configure(new DefaultMQPullConsumer(a.text("group")));
            c.start();
            return pulls.add(c);
        });
        ops.put("pull.pull", this::pull);
        ops.put("pull.queues", a -> Texts.queues(pulls.get(a).fetchSubscribeMessageQueues(a.text("topic"))));
        ops.put("pull.offsets", a -> {
            DefaultMQPullConsumer c = pulls.get(a);
            JSONObject o = new JSONObject();
            o.put("min", c.minOffset(a.queue()));
            o.put("max", c.maxOffset(a.queue()));
            o.put("earliest", c.earliestMsgStoreTime(a.queue()));
            o.put("search", c.searchOffset(a.queue(), a.big("timestamp", 0)));
            return o;
        });
        ops.put("pull.stored", a -> pulls.get(a).fetchConsumeOffset(a.queue(), true));
        ops.put("pull.store", a -> {
            pulls.get(a).updateConsumeOffset(a.queue(), a.big("offset", 0));
            pulls.get(a).getDefaultMQPullConsumerImpl().getOffsetStore().persist(a.queue());
            return null;
        });
        ops.put("pull.sendBack", a -> {
            DefaultMQPullConsumer c = pulls.get(a);
            List<MessageExt> found = c.pull(a.queue(), "*", a.big("offset", 0), 1).getMsgFoundList();
            c.sendMessageBack(found.get(0), a.number("delayLevel", 1));
            return null;
        });
        ops.put("pull.stop", a -> {
            pulls.remove(a).shutdown();
            return null;
        });
    }

    private Object pull(Args a) throws Exception {
        DefaultMQPullConsumer c = pulls.get(a);
        String expression = a.text("expression", "*");
        PullResult r = a.has("sql")
            ? c.pull(a.queue(), MessageSelector.bySql(a.text("sql")), a.big("offset", 0), a.number("max", 32))
            : a.flag("block")
            ? c.pullBlockIfNotFound(a.queue(), expression, a.big("offset", 0), a.number("max", 32))
            : c.pull(a.queue(), expression, a.big("offset", 0), a.number("max", 32));
        JSONObject o = new JSONObject();
        o.put("status", r.getPullStatus().name());
        o.put("next", r.getNextBeginOffset());
        o.put("min", r.getMinOffset());
        o.put("max", r.getMaxOffset());
        o.put("messages", Texts.received(r.getMsgFoundList() == null ? List.of() : r.getMsgFoundList()));
        return o;
    }

    private void registerLite(Map<String, Main.Op> ops) {
        ops.put("lite.start", a -> {
            DefaultLitePullConsumer c = a.configure(new DefaultLitePullConsumer(a.text("group")));
            c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            c.setAutoCommit(a.flag("autoCommit"));
            c.setTopicMetadataCheckIntervalMillis(1_000);
            if (a.has("sql")) {
                c.subscribe(a.text("topic"), MessageSelector.bySql(a.text("sql")));
            } else if (!a.flag("assign")) {
                c.subscribe(a.text("topic"), a.text("expression", "*"));
            }
            c.start();
            if (a.flag("assign")) {
                c.assign(c.fetchMessageQueues(a.text("topic")));
            }
            return lites.add(c);
        });
        // Polls until count messages came or the time is over.
        ops.put("lite.poll", a -> {
            DefaultLitePullConsumer c = lites.get(a);
            List<JSONObject> out = new ArrayList<>();
            long end = System.currentTimeMillis() + a.number("timeoutMs", 20_000);
            while (out.size() < a.number("count", 1) && System.currentTimeMillis() < end) {
                out.addAll(Texts.received(c.poll(500)));
            }
            return out;
        });
        ops.put("lite.assignment", a -> Texts.queues(lites.get(a).assignment()));
        ops.put("lite.commit", a -> {
            lites.get(a).commitSync();
            return null;
        });
        ops.put("lite.committed", a -> lites.get(a).committed(a.queue()));
        ops.put("lite.search", a -> lites.get(a).offsetForTimestamp(a.queue(), a.big("timestamp", 0)));
        ops.put("lite.seek", a -> {
            MessageQueue q = a.queue();
            switch (a.text("to", "offset")) {
                case "begin":
                    lites.get(a).seekToBegin(q);
                    break;
                case "end":
                    lites.get(a).seekToEnd(q);
                    break;
                default:
                    lites.get(a).seek(q, a.big("offset", 0));
            }
            return null;
        });
        ops.put("lite.stop", a -> {
            lites.remove(a).shutdown();
            return null;
        });
    }
}
