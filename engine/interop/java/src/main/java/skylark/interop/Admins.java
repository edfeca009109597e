// SPDX-License-Identifier: Apache-2.0

package skylark.interop;

import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONObject;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.commons.cli.CommandLine;
import org.apache.commons.cli.DefaultParser;
import org.apache.commons.cli.Options;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.srvutil.ServerUtil;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.apache.rocketmq.tools.command.SubCommand;

/** DefaultMQAdminExt, and the commands of mqadmin by their class. */
final class Admins {
    private final Handles<DefaultMQAdminExt> handles = new Handles<>();

    void register(Map<String, Main.Op> ops) {
        ops.put("admin.start", a -> {
            DefaultMQAdminExt admin = a.configure(new DefaultMQAdminExt(15_000));
            admin.start();
            return handles.add(admin);
        });
        ops.put("admin.stop", a -> {
            handles.remove(a).shutdown();
            return null;
        });
        ops.put("mqadmin", Admins::command);
        registerTopics(ops);
        registerQueries(ops);
        registerState(ops);
        registerOffsets(ops);
    }

    private void registerTopics(Map<String, Main.Op> ops) {
        ops.put("admin.createTopic", a -> {
            handles.get(a).createAndUpdateTopicConfig(a.text("address"),
                new TopicConfig(a.text("topic"), a.number("queues", 4), a.number("queues", 4), a.number("perm", 6)));
            return null;
        });
        ops.put("admin.createGroup", a -> {
            SubscriptionGroupConfig g = new SubscriptionGroupConfig();
            g.setGroupName(a.text("group"));
            g.setRetryMaxTimes(a.number("retries", 16));
            handles.get(a).createAndUpdateSubscriptionGroupConfig(a.text("address"), g);
            return null;
        });
        ops.put("admin.deleteTopic", a -> {
            handles.get(a).deleteTopicInBroker(java.util.Set.of(a.text("address")), a.text("topic"));
            handles.get(a).deleteTopicInNameServer(java.util.Set.of(a.text("namesrv")), a.text("topic"));
            return null;
        });
        ops.put("admin.deleteGroup", a -> {
            handles.get(a).deleteSubscriptionGroup(a.text("address"), a.text("group"), true);
            return null;
        });
        ops.put("admin.topicConfig", a -> json(handles.get(a).examineTopicConfig(a.text("address"), a.text("topic"))));
        ops.put("admin.groupConfig", a -> json(handles.get(a).examineSubscriptionGroupConfig(a.text("address"), a.text("group"))));
        ops.put("admin.allTopics", a -> new ArrayList<>(
            handles.get(a).getAllTopicConfig(a.text("address"), 10_000).getTopicConfigTable().keySet()));
        ops.put("admin.allGroups", a -> new ArrayList<>(
            handles.get(a).getAllSubscriptionGroup(a.text("address"), 10_000).getSubscriptionGroupTable().keySet()));
        ops.put("admin.topicList", a -> new ArrayList<>(handles.get(a).fetchAllTopicList().getTopicList()));
    }

    private void registerQueries(Map<String, Main.Op> ops) {
        ops.put("admin.byKey", a -> found(handles.get(a).queryMessage(a.text("topic"), a.text("key"), a.number("max", 32),
            a.big("begin", 0), a.big("end", Long.MAX_VALUE))));
        ops.put("admin.byUniqueKey", a -> found(handles.get(a).queryMessageByUniqKey(a.text("cluster", "DefaultCluster"), a.text("topic"), a.text("key"), a.number("max", 32),
            a.big("begin", 0), a.big("end", Long.MAX_VALUE))));
        ops.put("admin.byId", a -> Texts.received(handles.get(a).viewMessage(a.text("topic"), a.text("id"))));
    }

    private void registerState(Map<String, Main.Op> ops) {
        ops.put("admin.cluster", a -> json(handles.get(a).examineBrokerClusterInfo()));
        ops.put("admin.route", a -> json(handles.get(a).examineTopicRouteInfo(a.text("topic"))));
        ops.put("admin.runtime", a -> new TreeMap<>(handles.get(a).fetchBrokerRuntimeStats(a.text("address")).getTable()));
        ops.put("admin.brokerConfig", a -> new TreeMap<>(handles.get(a).getBrokerConfig(a.text("address"))));
        ops.put("admin.consumerConnection", a -> json(handles.get(a).examineConsumerConnectionInfo(a.text("group"))));
        ops.put("admin.producerConnection", a -> json(handles.get(a).examineProducerConnectionInfo(a.text("group"), a.text("topic"))));
        ops.put("admin.consumeStats", a -> json(handles.get(a).examineConsumeStats(a.text("group"))));
        ops.put("admin.topicStats", a -> json(handles.get(a).examineTopicStats(a.text("topic"))));
        ops.put("admin.kv", a -> {
            handles.get(a).createAndUpdateKvConfig(a.text("space"), a.text("key"), a.text("value"));
            return handles.get(a).getKVConfig(a.text("space"), a.text("key"));
        });
    }

    private void registerOffsets(Map<String, Main.Op> ops) {
        ops.put("admin.resetByTime", a -> {
            handles.get(a).resetOffsetByTimestamp(a.text("topic"), a.text("group"), a.longNumber("timestamp", 0), true);
            return null;
        });
        ops.put("admin.resetQueue", a -> {
            handles.get(a).resetOffsetByQueueId(a.text("address"), a.text("group"), a.text("topic"), a.number("queueId", 0),
                a.longNumber("offset", 0));
            return null;
        });
        ops.put("admin.clone", a -> {
            handles.get(a).cloneGroupOffset(a.text("from"), a.text("to"), a.text("topic"), a.flag("offline"));
            return null;
        });
    }

    private static Object json(RemotingSerializable o) {
        return o == null ? null : plain(JSON.parse(o.toJson()));
    }

    private static Object json(Object o) {
        return o == null ? null : plain(JSON.parse(JSON.toJSONString(o)));
    }

    /** Turns numbers and objects that are keys, as fastjson writes them, into text. */
    private static Object plain(Object o) {
        if (o instanceof Map) {
            JSONObject out = new JSONObject();
            ((Map<?, ?>) o).forEach((k, v) -> out.put(k instanceof Map ? plain(k).toString() : String.valueOf(k), plain(v)));
            return out;
        }
        if (o instanceof List) {
            List<Object> out = new ArrayList<>();
            ((List<?>) o).forEach(v -> out.add(plain(v)));
            return out;
        }
        return o;
    }

    private static Object found(QueryResult r) {
        JSONObject o = new JSONObject();
        o.put("lastUpdate", r.getIndexLastUpdateTimestamp());
        o.put("messages", Texts.received(r.getMessageList()));
        return o;
    }

    /**
     * Runs one command of mqadmin, for example class "topic.UpdateTopicSubCommand" with args ["-b", ...],
     * and answers what it printed. One at a time: the commands print to the process's output and read the
     * name server from a system property.
     */
    private static synchronized Object command(Args a) throws Exception {
        SubCommand command = (SubCommand) Class.forName("org.apache.rocketmq.tools.command." + a.text("class"))
            .getDeclaredConstructor().newInstance();
        Options options = command.buildCommandlineOptions(ServerUtil.buildCommandlineOptions(new Options()));
        List<String> args = a.texts("args");
        CommandLine line = new DefaultParser().parse(options, args.toArray(new String[0]));
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream out = System.out;
        PrintStream sink = new PrintStream(printed, true, StandardCharsets.UTF_8);
        System.setOut(sink);
        System.setProperty(MixAll.NAMESRV_ADDR_PROPERTY, a.text("namesrv"));
        try {
            command.execute(line, options, null);
        } finally {
            System.setOut(out);
            System.clearProperty(MixAll.NAMESRV_ADDR_PROPERTY);
        }
        return printed.toString(StandardCharsets.UTF_8);
    }
}
