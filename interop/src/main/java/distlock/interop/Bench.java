package distlock.interop;

import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import java.util.Arrays;
import java.util.List;
import java.util.SplittableRandom;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import java.util.function.IntFunction;
import java.util.function.Supplier;
import java.util.stream.IntStream;
import org.redisson.api.RBucket;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;

/** Loops of lock and unlock, to count under contention and to measure. */
final class Bench {
    /** First thread id of the measuring threads, out of the range that tests choose from. */
    private static final long FIRST_TID = 1_000_000;

    private final RedissonClient client;
    private final Locks locks;
    private final OtherBench other;

    Bench(RedissonClient client, Locks locks) {
        this.client = client;
        this.locks = locks;
        other = new OtherBench(client);
    }

    /** Reads, adds one and writes back under the lock. If an update is lost, two threads held the lock at once. */
    Object counterLoop(Request request) {
        RLock lock = locks.of(request);
        RBucket<String> counter = client.getBucket(request.text("counter"), StringCodec.INSTANCE);
        long rounds = request.number("rounds");
        long holdNs = (long) (request.real("hold_ms", 0) * 1e6);
        Samples waits = new Samples();
        JsonArray each = new JsonArray();
        for (long i = 0; i < rounds; i++) {
            long asked = System.nanoTime();
            lock.lock();
            long waited = System.nanoTime() - asked;
            try {
                String old = counter.get();
                pause(holdNs);
                counter.set(Long.toString(old == null ? 1 : Long.parseLong(old) + 1));
            } finally {
                lock.unlock();
            }
            waits.add(waited);
            each.add(waited / 1000);
        }
        JsonObject answer = new JsonObject();
        answer.addProperty("rounds", rounds);
        answer.add("waits_us", each);
        waits.describe(answer);
        return answer;
    }

    /** Measures a lock and its unlock together, with a separate lock for each thread. Permits have one name for all. */
    Object uncontended(Request request) throws Exception {
        String flavour = request.text("flavour", "reentrant");
        if (OtherBench.hasPermits(flavour)) {
            Step turn = other.turn(request, true);
            return measure(request, i -> turn);
        }
        String prefix = request.text("prefix");
        return measure(request, i -> {
            RLock lock = locks.single(flavour, prefix + i);
            return samples -> {
                long start = System.nanoTime();
                lock.lock();
                lock.unlock();
                samples.add(System.nanoTime() - start);
            };
        });
    }

    /**
     * Measures the time from the call of lock() until it returns, with one lock for all threads. The flavour "mix"
     * uses a read-write lock, of which "reads" percent of the acquires take the read lock. With "turn", every other
     * thread takes the members of a multi-lock in the opposite order. For latches, see {@link OtherBench#watch}.
     */
    Object contended(Request request) throws Exception {
        String flavour = request.text("flavour", "reentrant");
        if (flavour.equals("latch")) {
            return other.watch(request);
        }
        if (OtherBench.hasPermits(flavour)) {
            Step turn = other.turn(request, false);
            return measure(request, i -> turn);
        }
        IntFunction<Supplier<RLock>> choices = choices(request);
        long holdNs = request.number("hold_us", 0) * 1000;
        return measure(request, i -> {
            Supplier<RLock> choice = choices.apply(i);
            return samples -> {
                RLock lock = choice.get();
                long start = System.nanoTime();
                lock.lock();
                long waited = System.nanoTime() - start;
                try {
                    pause(holdNs);
                } finally {
                    lock.unlock();
                }
                samples.add(waited);
            };
        });
    }

    /** Returns for each thread a supplier of the lock that it takes next. */
    private IntFunction<Supplier<RLock>> choices(Request request) {
        if (!request.text("flavour", "").equals("mix")) {
            RLock lock = locks.of(request);
            // Every other thread uses a multi-lock over the same names in reverse order.
            RLock turned = request.flag("turn") ? locks.of(turned(request)) : lock;
            return i -> () -> i % 2 == 0 ? lock : turned;
        }
        RLock read = locks.single("read", request.text("name"));
        RLock write = locks.single("write", request.text("name"));
        long reads = request.number("reads", 0);
        return i -> {
            SplittableRandom random = new SplittableRandom(ProcessHandle.current().pid() << 32 | i);
            return () -> random.nextInt(100) < reads ? read : write;
        };
    }

    private static Request turned(Request request) {
        JsonObject body = request.body().deepCopy();
        JsonArray names = new JsonArray();
        List<String> order = request.texts("names");
        for (int n = order.size(); n > 0; n--) {
            names.add(order.get(n - 1));
        }
        body.add("names", names);
        return new Request(body, request.id(), request.op());
    }

    interface Step {
        void run(Samples samples) throws Exception;
    }

    /** Repeats a step on every thread for the given time, after a warm-up that is not measured. */
    private static Object measure(Request request, IntFunction<Step> steps) throws Exception {
        int tasks = (int) request.number("tasks");
        long lengthNs = (long) (request.real("seconds", 1) * 1e9);
        long warmUpNs = (long) (request.real("warmup_seconds", 0) * 1e9);
        long firstTid = request.number("tid", FIRST_TID);

        CountDownLatch go = new CountDownLatch(1);
        AtomicReference<Throwable> failure = new AtomicReference<>();
        long[] begin = new long[1];
        Samples[] samples = new Samples[tasks];
        Thread[] threads = new Thread[tasks];
        for (int t = 0; t < tasks; t++) {
            Step step = steps.apply(t);
            Samples mine = samples[t] = new Samples();
            threads[t] = new LogicalThreads.Numbered(firstTid + t, () -> {
                try {
                    go.await();
                    Samples ignored = new Samples();
                    long measured = begin[0];
                    while (System.nanoTime() < measured) {
                        step.run(ignored);
                        ignored.clear();
                    }
                    while (System.nanoTime() < measured + lengthNs && failure.get() == null) {
                        step.run(mine);
                    }
                } catch (Throwable e) {
                    failure.compareAndSet(null, e);
                }
            });
            threads[t].start();
        }
        begin[0] = System.nanoTime() + warmUpNs;
        go.countDown();
        for (Thread thread : threads) {
            thread.join();
        }
        if (failure.get() != null) {
            throw new ExecutionException(failure.get());
        }

        JsonObject answer = new JsonObject();
        JsonArray counts = new JsonArray();
        List.of(samples).forEach(each -> counts.add(each.size()));
        Samples all = Samples.of(samples);
        answer.addProperty("pairs", all.size());
        answer.addProperty("seconds", (System.nanoTime() - begin[0]) / 1e9);
        answer.add("counts", counts);
        all.describe(answer);
        return answer;
    }

    static void pause(long ns) {
        long end = System.nanoTime() + ns;
        for (long left = ns; left > 0; left = end - System.nanoTime()) {
            LockSupport.parkNanos(left);
        }
    }

    /** Durations in nanoseconds. */
    static final class Samples {
        private long[] values = new long[256];
        private int size;

        static Samples of(Samples[] parts) {
            Samples all = new Samples();
            all.values = Arrays.stream(parts)
                .flatMapToLong(part -> IntStream.range(0, part.size).mapToLong(i -> part.values[i]))
                .toArray();
            all.size = all.values.length;
            return all;
        }

        void add(long ns) {
            if (size == values.length) {
                values = Arrays.copyOf(values, size * 2);
            }
            values[size++] = ns;
        }

        int size() {
            return size;
        }

        void clear() {
            size = 0;
        }

        void describe(JsonObject answer) {
            long[] sorted = Arrays.copyOf(values, size);
            Arrays.sort(sorted);
            answer.addProperty("p50_us", at(sorted, 0.50));
            answer.addProperty("p99_us", at(sorted, 0.99));
            answer.addProperty("worst_us", at(sorted, 1.0));
        }

        private static double at(long[] sorted, double share) {
            if (sorted.length == 0) {
                return 0;
            }
            int rank = (int) Math.ceil(share * sorted.length);
            return sorted[Math.max(rank, 1) - 1] / 1e3;
        }
    }
}
