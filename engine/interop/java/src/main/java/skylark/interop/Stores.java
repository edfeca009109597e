// SPDX-License-Identifier: Apache-2.0

package skylark.interop;

import com.alibaba.fastjson2.JSONObject;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;
import org.apache.rocketmq.remoting.protocol.body.TopicConfigSerializeWrapper;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.SelectMappedBufferResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.queue.ConsumeQueueInterface;
import org.apache.rocketmq.store.queue.CqUnit;
import org.apache.rocketmq.store.queue.ReferredIterator;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** The real message store alone, without a broker, on any directory. */
final class Stores {
    void register(Map<String, Main.Op> ops) {
        ops.put("store.dump", Stores::dump);
    }

    /**
     * Opens the store in dir, which its recovery changes, with the lines of broker.conf in conf. Answers the
     * log's bounds, "topic queue min max" for each queue, and for each message "topic queue offset place size
     * tagsCode hash keys found": how many keys and unique ids it has and how many of them lead to it.
     */
    private static Object dump(Args a) throws Exception {
        String dir = a.text("dir");
        Properties lines = new Properties();
        lines.putAll(a.map("conf"));
        MessageStoreConfig config = new MessageStoreConfig();
        BrokerConfig broker = new BrokerConfig();
        MixAll.properties2Object(lines, config);
        MixAll.properties2Object(lines, broker);
        config.setStorePathRootDir(dir);
        config.setStorePathCommitLog(dir + "/commitlog");
        config.setHaListenPort(0);
        DefaultMessageStore store = new DefaultMessageStore(config, new BrokerStatsManager(broker),
            (topic, queueId, offset, tagsCode, time, bitMap, properties) -> { }, broker, topics(dir));
        if (!store.load()) {
            throw new IllegalStateException("the store did not load " + dir);
        }
        try {
            JSONObject out = new JSONObject();
            out.put("min", store.getMinPhyOffset());
            out.put("max", store.getMaxPhyOffset());
            List<String> queues = new ArrayList<>();
            List<String> messages = new ArrayList<>();
            for (Map.Entry<String, ConcurrentMap<Integer, ConsumeQueueInterface>> byTopic : store.getConsumeQueueTable().entrySet()) {
                for (ConsumeQueueInterface q : byTopic.getValue().values()) {
                    queues.add(q.getTopic() + " " + q.getQueueId() + " " + q.getMinOffsetInQueue() + " " + q.getMaxOffsetInQueue());
                    queue(store, q, messages);
                }
            }
            out.put("queues", queues);
            out.put("messages", messages);
            return out;
        } finally {
            // It sleeps for seconds, for the sake of threads that were never started here.
            new Thread(store::shutdown).start();
        }
    }

    /** The store asks this table which kind of queue a topic has. */
    private static ConcurrentMap<String, TopicConfig> topics(String dir) throws Exception {
        ConcurrentMap<String, TopicConfig> table = new ConcurrentHashMap<>();
        Path file = Path.of(dir, "config", "topics.json");
        if (Files.exists(file)) {
            table.putAll(RemotingSerializable.fromJson(Files.readString(file), TopicConfigSerializeWrapper.class).getTopicConfigTable());
        }
        return table;
    }

    private static void queue(DefaultMessageStore store, ConsumeQueueInterface q, List<String> out) throws Exception {
        long offset = Math.max(q.getMinOffsetInQueue(), 0);
        while (offset < q.getMaxOffsetInQueue()) {
            long before = offset;
            ReferredIterator<CqUnit> units = q.iterateFrom(offset);
            if (units != null) {
                try {
                    while (units.hasNext()) {
                        CqUnit u = units.next();
                        out.add(q.getTopic() + " " + q.getQueueId() + " " + u.getQueueOffset() + " " + u.getPos() + " " + u.getSize()
                            + " " + u.getTagsCode() + " " + message(store, u));
                        offset = u.getQueueOffset() + Math.max(1, u.getBatchNum());
                    }
                } finally {
                    units.release();
                }
            }
            if (offset == before) {
                out.add(q.getTopic() + " " + q.getQueueId() + " " + offset + " no unit");
                offset++;
            }
        }
    }

    private static String message(DefaultMessageStore store, CqUnit u) throws Exception {
        SelectMappedBufferResult r = store.getCommitLog().getMessage(u.getPos(), u.getSize());
        if (r == null) {
            return "no record";
        }
        byte[] raw = new byte[r.getSize()];
        try {
            r.getByteBuffer().get(raw);
        } finally {
            r.release();
        }
        MessageExt m = MessageDecoder.decode(ByteBuffer.wrap(raw), true, false, false);
        if (m == null || !store.checkMessageAndReturnSize(ByteBuffer.wrap(raw), true, false, true).isSuccess()) {
            return "damaged record";
        }
        List<String> keys = new ArrayList<>();
        if (m.getProperty(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX) != null) {
            keys.add(m.getProperty(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX));
        }
        if (m.getKeys() != null) {
            for (String key : m.getKeys().split(" ")) {
                if (!key.isEmpty()) {
                    keys.add(key);
                }
            }
        }
        int found = 0;
        for (String key : keys) {
            if (store.getIndexService().queryOffset(m.getTopic(), key, 1000, 0, Long.MAX_VALUE, null).getPhyOffsets().contains(u.getPos())) {
                found++;
            }
        }
        byte[] sum = MessageDigest.getInstance("SHA-256").digest(raw);
        return HexFormat.of().formatHex(sum, 0, 8) + " " + keys.size() + " " + found;
    }
}
