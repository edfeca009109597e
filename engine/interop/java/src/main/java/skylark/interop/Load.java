// SPDX-License-Identifier: Apache-2.0

package skylark.interop;

import java.util.Arrays;
import java.util.Locale;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;

/**
 * Loads a broker with Apache's own producer: threads that each send one message and wait for its answer.
 * Arguments: name servers, topic, threads, bytes of a body, milliseconds to settle, milliseconds to
 * measure. Prints "begin" when the measured time starts, and then one JSON object with messages, failed,
 * seconds and latencies in milliseconds.
 */
public final class Load {
    private Load() {
    }

    public static void main(String[] args) throws Exception {
        int threads = Integer.parseInt(args[2]);
        byte[] body = new byte[Integer.parseInt(args[3])];
        Arrays.fill(body, (byte) 'x');
        DefaultMQProducer producer = new DefaultMQProducer("java_load");
        producer.setNamesrvAddr(args[0]);
        producer.setSendMsgTimeout(10_000);
        producer.start();
        long begin = System.nanoTime() + Long.parseLong(args[4]) * 1_000_000;
        long end = begin + Long.parseLong(args[5]) * 1_000_000;
        Sender[] senders = new Sender[threads];
        for (int i = 0; i < threads; i++) {
            senders[i] = new Sender(producer, args[1], body, begin, end);
            senders[i].start();
        }
        Thread.sleep(Math.max(0, (begin - System.nanoTime()) / 1_000_000));
        System.out.println("begin");
        System.out.flush();
        for (Sender s : senders) {
            s.join();
        }
        print(senders, (System.nanoTime() - begin) / 1e9);
        producer.shutdown();
        System.exit(0);
    }

    private static void print(Sender[] senders, double seconds) {
        int count = 0;
        long failed = 0;
        for (Sender s : senders) {
            count += s.count;
            failed += s.failed;
        }
        long[] all = new long[count];
        int at = 0;
        double sum = 0;
        for (Sender s : senders) {
            System.arraycopy(s.took, 0, all, at, s.count);
            at += s.count;
        }
        Arrays.sort(all);
        for (long took : all) {
            sum += took;
        }
        System.out.println(String.format(Locale.ROOT, "{\"messages\":%d,\"failed\":%d,\"seconds\":%.6f,"
            + "\"samples\":%d,\"mean\":%.6f,\"p50\":%s,\"p90\":%s,\"p99\":%s,\"p99.9\":%s,\"max\":%s}",
            count, failed, seconds, count, count == 0 ? 0 : sum / count / 1e6, at(all, 0.5), at(all, 0.9),
            at(all, 0.99), at(all, 0.999), at(all, 1)));
    }

    private static String at(long[] sorted, double q) {
        if (sorted.length == 0) {
            return "0";
        }
        int i = Math.min(sorted.length - 1, (int) (q * sorted.length));
        return String.format(Locale.ROOT, "%.6f", sorted[i] / 1e6);
    }

    /** One sending thread. What it sends before the measured time is not counted. */
    private static final class Sender extends Thread {
        private final DefaultMQProducer producer;
        private final String topic;
        private final byte[] body;
        private final long begin;
        private final long end;
        private long[] took = new long[1 << 12];
        private int count;
        private long failed;

        Sender(DefaultMQProducer producer, String topic, byte[] body, long begin, long end) {
            this.producer = producer;
            this.topic = topic;
            this.body = body;
            this.begin = begin;
            this.end = end;
        }

        @Override
        public void run() {
            for (long now = System.nanoTime(); now < end; now = System.nanoTime()) {
                boolean stored;
                try {
                    stored = producer.send(new Message(topic, body)).getSendStatus() == SendStatus.SEND_OK;
                } catch (Exception e) {
                    stored = false;
                }
                long answered = System.nanoTime();
                if (now < begin) {
                    continue;
                }
                if (!stored) {
                    failed++;
                    continue;
                }
                if (count == took.length) {
                    took = Arrays.copyOf(took, 2 * count);
                }
                took[count++] = answered - now;
            }
        }
    }
}
