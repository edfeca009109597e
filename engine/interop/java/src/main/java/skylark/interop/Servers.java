// SPDX-License-Identifier: Apache-2.0

package skylark.interop;

import java.lang.reflect.Field;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Properties;
import org.apache.rocketmq.auth.config.AuthConfig;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.SerializeType;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** The real name server and broker, in this process. */
final class Servers {
    private final Handles<NamesrvController> names = new Handles<>();
    private final Handles<BrokerController> brokers = new Handles<>();

    void register(Map<String, Main.Op> ops) {
        ops.put("namesrv.start", this::startNames);
        ops.put("namesrv.stop", a -> {
            names.remove(a).shutdown();
            return null;
        });
        ops.put("broker.start", this::startBroker);
        ops.put("broker.behind", a -> brokers.get(a).getMessageStore().dispatchBehindBytes());
        ops.put("broker.stop", a -> {
            brokers.remove(a).shutdown();
            return null;
        });
        ops.put("serialize", a -> {
            Field kind = RemotingCommand.class.getDeclaredField("serializeTypeConfigInThisServer");
            kind.setAccessible(true);
            kind.set(null, SerializeType.valueOf(a.text("type")));
            return null;
        });
    }

    private Object startNames(Args a) throws Exception {
        Path dir = Files.createDirectories(Path.of(a.text("dir")));
        NettyServerConfig server = new NettyServerConfig();
        server.setListenPort(a.number("port", 0));
        server.setBindAddress("127.0.0.1");
        NamesrvConfig config = new NamesrvConfig();
        config.setRocketmqHome(dir.toString());
        config.setKvConfigPath(dir.resolve("kvConfig.json").toString());
        config.setConfigStorePath(dir.resolve("namesrv.properties").toString());
        NamesrvController controller = new NamesrvController(config, server);
        if (!controller.initialize()) {
            throw new IllegalStateException("the name server did not initialize");
        }
        controller.start();
        return names.add(controller);
    }

    /** Arguments: port (also uses port - 2 and port + 1), namesrv, dir, and conf, lines of broker.conf. */
    private Object startBroker(Args a) throws Exception {
        int port = a.number("port", 0);
        String dir = a.text("dir");
        Properties lines = new Properties();
        // Small files; and the 200 ms that a send may wait are little on a busy machine.
        lines.setProperty("mappedFileSizeCommitLog", String.valueOf(64 << 20));
        lines.setProperty("waitTimeMillsInSendQueue", "10000");
        lines.setProperty("brokerName", "broker-a");
        lines.setProperty("brokerClusterName", "DefaultCluster");
        lines.setProperty("rocketmqHome", dir);
        lines.putAll(a.map("conf"));
        NettyServerConfig server = new NettyServerConfig();
        BrokerConfig config = new BrokerConfig();
        config.setBrokerIP1("127.0.0.1");
        config.setBrokerIP2("127.0.0.1");
        config.setNamesrvAddr(a.text("namesrv"));
        MessageStoreConfig store = new MessageStoreConfig();
        MixAll.properties2Object(lines, server);
        MixAll.properties2Object(lines, config);
        MixAll.properties2Object(lines, store);
        server.setListenPort(port);
        server.setBindAddress("127.0.0.1");
        config.setListenPort(port);
        store.setHaListenPort(port + 1);
        store.setStorePathRootDir(dir);
        store.setStorePathCommitLog(lines.getProperty("storePathCommitLog", dir + "/commitlog"));
        AuthConfig auth = new AuthConfig();
        MixAll.properties2Object(lines, auth);
        auth.setConfigName(config.getBrokerName());
        auth.setClusterName(config.getBrokerClusterName());
        auth.setAuthConfigPath(dir + "/config");
        BrokerController controller =
            new BrokerController(config, server, new NettyClientConfig(), store, auth);
        if (!controller.initialize()) {
            controller.shutdown();
            throw new IllegalStateException("the broker did not initialize");
        }
        controller.start();
        register(controller);
        return brokers.add(controller);
    }

    /** The broker registers at once only when its client has met the name server already; else 10 s later. */
    private static void register(BrokerController controller) throws InterruptedException {
        for (int i = 0; i < 100; i++) {
            if (!controller.getBrokerOuterAPI().getRemotingClient().getAvailableNameSrvList().isEmpty()) {
                controller.registerBrokerAll(true, false, true);
                return;
            }
            Thread.sleep(100);
        }
    }
}
