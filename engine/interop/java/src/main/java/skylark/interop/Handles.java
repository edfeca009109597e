// SPDX-License-Identifier: Apache-2.0

package skylark.interop;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;

/** Objects that outlive a command, by the name that the test knows them by. */
final class Handles<T> {
    private static final AtomicInteger NEXT = new AtomicInteger();

    private final Map<String, T> known = new ConcurrentHashMap<>();

    String add(T value) {
        String name = "h" + NEXT.incrementAndGet();
        known.put(name, value);
        return name;
    }

    T get(Args args) {
        T value = known.get(args.text("handle"));
        if (value == null) {
            throw new IllegalArgumentException("no handle " + args.text("handle"));
        }
        return value;
    }

    T remove(Args args) {
        T value = get(args);
        known.remove(args.text("handle"));
        return value;
    }
}
