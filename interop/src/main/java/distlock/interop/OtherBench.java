package distlock.interop;

import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.redisson.api.RCountDownLatch;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;

/** Measures permits, semaphores and latches. The caller has written their numbers into Redis. */
final class OtherBench {
    private final RedissonClient client;

    OtherBench(RedissonClient client) {
        this.client = client;
    }

    /** True for the flavours of {@link #turn}. */
    static boolean hasPermits(String flavour) {
        return flavour.equals("permits") || flavour.equals("semaphore");
    }

    /** One object for all threads. */
    private interface Gate {
        /** Returns the permit's id, or null if permits have none. */
        String acquire() throws InterruptedException;

        void release(String id);
    }

    /** Acquires and releases a permit. Measures both together if {@code pairs}, otherwise the wait. */
    Bench.Step turn(Request request, boolean pairs) {
        Gate gate = gate(request);
        long holdNs = request.number("hold_us", 0) * 1000;
        return samples -> {
            long start = System.nanoTime();
            String id = gate.acquire();
            long waited = System.nanoTime() - start;
            try {
                Bench.pause(holdNs);
            } finally {
                gate.release(id);
            }
            samples.add(pairs ? System.nanoTime() - start : waited);
        };
    }

    private Gate gate(Request request) {
        String name = request.text("name");
        if (request.text("flavour").equals("semaphore")) {
            RSemaphore semaphore = client.getSemaphore(name);
            return new Gate() {
                @Override
                public String acquire() throws InterruptedException {
                    semaphore.acquire();
                    return null;
                }

                @Override
                public void release(String id) {
                    semaphore.release();
                }
            };
        }
        RPermitExpirableSemaphore permits = client.getPermitExpirableSemaphore(name);
        long leaseMs = request.number("lease_ms");
        return new Gate() {
            @Override
            public String acquire() throws InterruptedException {
                return permits.acquire(leaseMs, TimeUnit.MILLISECONDS);
            }

            @Override
            public void release(String id) {
                permits.release(id);
            }
        };
    }

    /**
     * Waits for the latches {@code <name>:0} and up, one after the other, from {@code begin_ns} on. With
     * {@code counts_down}, this thread counts down one of them every {@code period_ns}. All times are on the clock of
     * {@link System#nanoTime()}. Returns for each latch when the last waiter called and when the last one went on, and
     * the times of the count-downs.
     */
    Object watch(Request request) throws Exception {
        RCountDownLatch[] latches = new RCountDownLatch[(int) request.number("latches")];
        for (int i = 0; i < latches.length; i++) {
            latches[i] = client.getCountDownLatch(request.text("name") + ":" + i);
        }
        long begin = request.number("begin_ns");
        List<Waiter> waiters = new ArrayList<>();
        for (long i = request.number("waiters"); i > 0; i--) {
            Waiter waiter = new Waiter(latches, begin);
            waiter.start();
            waiters.add(waiter);
        }
        JsonArray downs = new JsonArray();
        if (request.flag("counts_down")) {
            long period = request.number("period_ns");
            for (int i = 0; i < latches.length; i++) {
                Bench.pause(begin + (i + 1) * period - System.nanoTime());
                downs.add(System.nanoTime());
                latches[i].countDown();
            }
        }
        JsonArray called = new JsonArray();
        JsonArray wentOn = new JsonArray();
        for (Waiter waiter : waiters) {
            waiter.join();
            if (waiter.failure != null) {
                throw new ExecutionException(waiter.failure);
            }
        }
        for (int i = 0; i < latches.length; i++) {
            int latch = i;
            called.add(waiters.stream().mapToLong(waiter -> waiter.called[latch]).max().orElse(0));
            wentOn.add(waiters.stream().mapToLong(waiter -> waiter.wentOn[latch]).max().orElse(0));
        }
        JsonObject answer = new JsonObject();
        answer.add("called", called);
        answer.add("went_on", wentOn);
        answer.add("downs", downs);
        return answer;
    }

    /** Waits for all latches, and notes the times of each call and of its return. */
    private static final class Waiter extends Thread {
        private final RCountDownLatch[] latches;
        private final long begin;
        final long[] called;
        final long[] wentOn;
        Throwable failure;

        Waiter(RCountDownLatch[] latches, long begin) {
            this.latches = latches;
            this.begin = begin;
            called = new long[latches.length];
            wentOn = new long[latches.length];
            setDaemon(true);
        }

        @Override
        public void run() {
            try {
                Bench.pause(begin - System.nanoTime());
                for (int i = 0; i < latches.length; i++) {
                    called[i] = System.nanoTime();
                    latches[i].await();
                    wentOn[i] = System.nanoTime();
                }
            } catch (Throwable e) {
                failure = e;
            }
        }
    }
}
