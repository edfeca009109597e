// SPDX-License-Identifier: Apache-2.0

package skylark.interop;

import com.alibaba.fastjson2.JSONObject;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.HexFormat;
import java.util.List;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Messages and results as the test sees them. */
final class Texts {
    private Texts() {
    }

    /**
     * Makes a message of: topic, body or bodyBase64 or (fill and size), tags, keys, flag, properties, noWait,
     * and one of delayLevel, delaySeconds, delayMs, deliverMs. */
    static Message message(Args a) {
        byte[] body;
        if (a.has("bodyBase64")) {
            body = Base64.getDecoder().decode(a.text("bodyBase64"));
        } else if (a.has("fill")) {
            body = fill(a.text("fill"), a.number("size", 0));
        } else {
            body = a.text("body").getBytes(StandardCharsets.UTF_8);
        }
        Message m = new Message(a.text("topic"), body);
        if (a.has("tags")) {
            m.setTags(a.text("tags"));
        }
        if (a.has("keys")) {
            m.setKeys(a.text("keys"));
        }
        m.setFlag(a.number("flag", 0));
        if (a.flag("noWait")) {
            m.setWaitStoreMsgOK(false);
        }
        if (a.has("delayLevel")) {
            m.setDelayTimeLevel(a.number("delayLevel", 0));
        }
        if (a.has("delaySeconds")) {
            m.setDelayTimeSec(a.number("delaySeconds", 0));
        }
        if (a.has("delayMs")) {
            m.setDelayTimeMs(a.big("delayMs", 0));
        }
        if (a.has("deliverMs")) {
            m.setDeliverTimeMs(a.big("deliverMs", 0));
        }
        a.map("properties").forEach(m::putUserProperty);
        return m;
    }

    private static byte[] fill(String pattern, int size) {
        byte[] unit = pattern.getBytes(StandardCharsets.UTF_8);
        byte[] out = new byte[size];
        for (int i = 0; i < size; i++) {
            out[i] = unit[i % unit.length];
        }
        return out;
    }

    static JSONObject sent(SendResult r) {
        JSONObject o = new JSONObject();
        o.put("status", r.getSendStatus().name());
        o.put("msgId", r.getMsgId());
        o.put("offsetMsgId", r.getOffsetMsgId());
        o.put("queueOffset", r.getQueueOffset());
        o.put("transactionId", r.getTransactionId());
        o.put("region", r.getRegionId());
        o.put("traceOn", r.isTraceOn());
        o.put("recallHandle", r.getRecallHandle());
        if (r.getMessageQueue() != null) {
            o.put("queueId", r.getMessageQueue().getQueueId());
            o.put("broker", r.getMessageQueue().getBrokerName());
        }
        return o;
    }

    static List<JSONObject> received(Collection<MessageExt> messages) {
        List<JSONObject> out = new ArrayList<>();
        messages.forEach(m -> out.add(received(m)));
        return out;
    }

    static JSONObject received(MessageExt m) {
        JSONObject o = new JSONObject();
        o.put("topic", m.getTopic());
        o.put("broker", m.getBrokerName());
        o.put("queueId", m.getQueueId());
        o.put("queueOffset", m.getQueueOffset());
        o.put("commitLogOffset", m.getCommitLogOffset());
        o.put("msgId", m.getMsgId());
        o.put("offsetMsgId", m instanceof MessageClientExt ? ((MessageClientExt) m).getOffsetMsgId() : m.getMsgId());
        o.put("tags", m.getTags());
        o.put("keys", m.getKeys());
        o.put("flag", m.getFlag());
        o.put("sysFlag", m.getSysFlag());
        o.put("reconsumeTimes", m.getReconsumeTimes());
        o.put("bornTimestamp", m.getBornTimestamp());
        o.put("storeTimestamp", m.getStoreTimestamp());
        o.put("bornHost", String.valueOf(m.getBornHost()));
        o.put("storeHost", String.valueOf(m.getStoreHost()));
        o.put("bodyCRC", m.getBodyCRC());
        o.put("storeSize", m.getStoreSize());
        o.put("properties", m.getProperties());
        byte[] body = m.getBody() == null ? new byte[0] : m.getBody();
        o.put("bodySize", body.length);
        o.put("bodySha256", sha256(body));
        if (body.length <= 4096) {
            o.put("body", new String(body, StandardCharsets.UTF_8));
        }
        return o;
    }

    static JSONObject queue(MessageQueue q) {
        JSONObject o = new JSONObject();
        o.put("topic", q.getTopic());
        o.put("broker", q.getBrokerName());
        o.put("queueId", q.getQueueId());
        return o;
    }

    static List<JSONObject> queues(Collection<MessageQueue> queues) {
        List<JSONObject> out = new ArrayList<>();
        queues.stream().sorted().forEach(q -> out.add(queue(q)));
        return out;
    }

    private static String sha256(byte[] bytes) {
        try {
            return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(bytes));
        } catch (NoSuchAlgorithmException e) {
            throw new IllegalStateException(e);
        }
    }
}
