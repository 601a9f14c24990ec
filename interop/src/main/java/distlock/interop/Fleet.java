package distlock.interop;

import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.SplittableRandom;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.atomic.AtomicReference;
import org.redisson.api.RLock;

/** Threads of a mixed fleet. They acquire and release one lock without a break until a given time. */
final class Fleet {
    /** Pause after a failed acquire, in nanoseconds. */
    private static final long AFTER_FAILURE = 10_000_000;

    private final Locks locks;

    Fleet(Locks locks) {
        this.locks = locks;
    }

    /**
     * Loops from {@code from} until {@code to}, both on the clock of {@link System#nanoTime()}. Returns after the last
     * release. {@code file} receives the events; without it nothing is recorded.
     */
    Object loop(Request request) throws Exception {
        long from = request.number("from");
        long to = request.number("to");
        long holdNs = request.number("hold_us") * 1000;
        long reads = request.number("reads", 0);
        boolean rw = request.text("flavour").equals("rw");
        RLock exclusive = rw ? locks.single("write", request.text("name")) : locks.of(request);
        RLock read = rw ? locks.single("read", request.text("name")) : exclusive;
        char other = rw ? 'w' : 'x';

        int count = (int) request.number("threads");
        AtomicReference<Throwable> failure = new AtomicReference<>();
        List<Thread> threads = new ArrayList<>();
        try (Events events = new Events(request.text("file", ""))) {
            for (int worker = 0; worker < count; worker++) {
                int number = worker;
                SplittableRandom random = new SplittableRandom(request.number("seed") * 64 + worker);
                Thread thread = new Thread(() -> {
                    try {
                        Bench.pause(from - System.nanoTime());
                        while (System.nanoTime() - to < 0) {
                            boolean reading = rw && random.nextInt(100) < reads;
                            long hold = random.nextLong(holdNs + 1);
                            turn(reading ? read : exclusive, number, reading ? 'r' : other, hold, events);
                        }
                    } catch (Throwable e) {
                        failure.compareAndSet(null, e);
                    }
                });
                thread.setDaemon(true);
                thread.start();
                threads.add(thread);
            }
            for (Thread thread : threads) {
                thread.join();
            }
        }
        if (failure.get() != null) {
            throw new ExecutionException(failure.get());
        }
        return true;
    }

    private static void turn(RLock lock, int worker, char kind, long hold, Events events) throws IOException {
        events.write("A " + worker + ' ' + kind + ' ' + System.nanoTime());
        try {
            lock.lock();
        } catch (RuntimeException e) {
            events.write("X " + worker + " lock: " + oneLine(e));
            Bench.pause(AFTER_FAILURE);
            return;
        }
        events.write("E " + worker + ' ' + System.nanoTime());
        Bench.pause(hold);
        // Written before the release: a process that is killed after its release must not look like a holder.
        events.write("L " + worker + ' ' + System.nanoTime());
        try {
            lock.unlock();
        } catch (RuntimeException e) {
            events.write("X " + worker + " unlock: " + oneLine(e));
        }
    }

    private static String oneLine(Throwable e) {
        return e.toString().replace('\n', ' ');
    }

    /** A file to which each event is written at once, so that the events of a killed process survive. */
    private static final class Events implements AutoCloseable {
        private final FileOutputStream file;

        Events(String path) throws IOException {
            file = path.isEmpty() ? null : new FileOutputStream(path, true);
        }

        void write(String event) throws IOException {
            if (file != null) {
                // One system call per event. Appends of several threads do not mix.
                file.write((event + '\n').getBytes(StandardCharsets.US_ASCII));
            }
        }

        @Override
        public void close() throws IOException {
            if (file != null) {
                file.close();
            }
        }
    }
}
