// SPDX-License-Identifier: Apache-2.0

package skylark.interop;

import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.URLConnection;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/**
 * Runs Apache RocketMQ's clients, tools and servers for the tests. Each line of the standard input is
 * {"id":1,"op":"producer.send","args":{...}}; each line of the output {"id":1,"ok":true,"value":...} or
 * {"id":1,"ok":false,"error":"MQBrokerException","code":13,"message":"..."}. Commands run at once and
 * are answered in the order they end. The process ends with its input.
 */
public final class Main {
    /** One command. */
    interface Op {
        Object run(Args args) throws Exception;
    }

    private static final PrintStream OUT = System.out;

    private Main() {
    }

    public static void main(String[] arguments) throws Exception {
        // What a tool or a library prints must not come between two answers.
        System.setOut(System.err);
        // Servers, clients and tools in one process look for the same resources at once. A jar that the
        // process keeps open for all of them can be closed by one while another reads ("zip file closed").
        URLConnection.setDefaultUseCaches("jar", false);
        // As the programs' own main methods do: version 0 would be taken for an old server.
        System.setProperty(RemotingCommand.REMOTING_VERSION_KEY, Integer.toString(MQVersion.CURRENT_VERSION));
        Map<String, Op> ops = new HashMap<>();
        ops.put("ping", args -> "pong");
        new Producers().register(ops);
        new PushConsumers().register(ops);
        new PullConsumers().register(ops);
        new Admins().register(ops);
        new Filters().register(ops);
        new Stores().register(ops);
        Servers servers = new Servers();
        servers.register(ops);
        ExecutorService workers = Executors.newCachedThreadPool();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JSONObject request = JSON.parseObject(line);
            workers.execute(() -> answer(ops, request));
        }
        // The tests have stopped what they started; whatever is left ends with the process.
        Runtime.getRuntime().halt(0);
    }

    private static void answer(Map<String, Op> ops, JSONObject request) {
        JSONObject answer = new JSONObject();
        answer.put("id", request.get("id"));
        try {
            Op op = ops.get(request.getString("op"));
            if (op == null) {
                throw new IllegalArgumentException("no op " + request.getString("op"));
            }
            JSONObject args = request.getJSONObject("args");
            answer.put("value", op.run(new Args(args == null ? new JSONObject() : args)));
            answer.put("ok", true);
        } catch (Throwable e) {
            e.printStackTrace();
            answer.put("ok", false);
            answer.put("error", e.getClass().getSimpleName());
            answer.put("message", String.valueOf(e.getMessage()));
            answer.put("code", code(e));
        }
        String text = answer.toString();
        synchronized (OUT) {
            OUT.println(text);
            OUT.flush();
        }
    }

    /** The broker's response code, which the client wraps once or twice. */
    private static int code(Throwable e) {
        if (e instanceof MQBrokerException) {
            return ((MQBrokerException) e).getResponseCode();
        }
        int inner = e.getCause() == null || e.getCause() == e ? -1 : code(e.getCause());
        return inner == -1 && e instanceof MQClientException ? ((MQClientException) e).getResponseCode() : inner;
    }
}
