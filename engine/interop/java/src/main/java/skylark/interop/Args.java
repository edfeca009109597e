// SPDX-License-Identifier: Apache-2.0

package skylark.interop;

import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.common.message.MessageQueue;

/** The arguments of one command. */
final class Args {
    private final JSONObject values;

    Args(JSONObject values) {
        this.values = values;
    }

    boolean has(String name) {
        return values.get(name) != null;
    }

    String text(String name) {
        String v = values.getString(name);
        if (v == null) {
            throw new IllegalArgumentException("missing argument " + name);
        }
        return v;
    }

    String text(String name, String otherwise) {
        return has(name) ? values.getString(name) : otherwise;
    }

    int number(String name, int otherwise) {
        return has(name) ? values.getIntValue(name) : otherwise;
    }

    long big(String name, long otherwise) {
        return has(name) ? values.getLongValue(name) : otherwise;
    }

    boolean flag(String name) {
        return has(name) && values.getBooleanValue(name);
    }

    Map<String, String> map(String name) {
        Map<String, String> out = new LinkedHashMap<>();
        JSONObject o = values.getJSONObject(name);
        if (o != null) {
            o.forEach((k, v) -> out.put(k, String.valueOf(v)));
        }
        return out;
    }

    List<String> texts(String name) {
        List<String> out = new ArrayList<>();
        JSONArray a = values.getJSONArray(name);
        if (a != null) {
            a.forEach(v -> out.add(String.valueOf(v)));
        }
        return out;
    }

    long longNumber(String name, long otherwise) {
        return has(name) ? values.getLongValue(name) : otherwise;
    }

    List<Args> list(String name) {
        List<Args> out = new ArrayList<>();
        JSONArray a = values.getJSONArray(name);
        for (int i = 0; a != null && i < a.size(); i++) {
            out.add(new Args(a.getJSONObject(i)));
        }
        return out;
    }

    /** The queue named by topic, broker and queueId, or null without a queueId. */
    MessageQueue queue() {
        return has("queueId") ? new MessageQueue(text("topic"), text("broker", "broker-a"), number("queueId", 0)) : null;
    }

    /**
     * Points a client at the name server under test. Intervals are shorter than the defaults, so that a
     * test does not wait 30 s for the next round of a timer; none of them is visible on the wire.
     */
    <C extends ClientConfig> C configure(C client) {
        client.setNamesrvAddr(text("namesrv"));
        client.setInstanceName(text("instance", "i" + System.nanoTime()));
        client.setClientIP(text("clientIP", "127.0.0.1"));
        client.setVipChannelEnabled(flag("vip"));
        client.setMqClientApiTimeout(15_000);
        client.setPollNameServerInterval(1_000);
        client.setPersistConsumerOffsetInterval(1_000);
        client.setEnableTrace(flag("trace"));
        client.setUseHeartbeatV2(flag("heartbeatV2"));
        // The client skips the heartbeat that follows a rebalance when another one is under way, and then the
        // broker takes its pulls for outdated until the next.
        client.setHeartbeatBrokerInterval(number("heartbeatMs", 2_000));
        if (has("namespace")) {
            client.setNamespaceV2(text("namespace"));
        }
        return client;
    }
}
