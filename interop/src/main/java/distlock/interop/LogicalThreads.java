package distlock.interop;

import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;

/**
 * A Java thread for every number asked for. What is submitted for one number runs one after another on the same thread;
 * different numbers do not wait for each other.
 */
final class LogicalThreads {
    private final Map<Long, Worker> workers = new ConcurrentHashMap<>();

    void submit(long number, Runnable work) {
        Worker worker = workers.computeIfAbsent(number, fresh -> {
            Worker started = new Worker(fresh);
            started.start();
            return started;
        });
        worker.queue.add(work);
    }

    /** Interrupts what that thread is doing now; false if it is doing nothing. */
    boolean interrupt(long number) {
        Worker worker = workers.get(number);
        return worker != null && worker.interruptWork();
    }

    /**
     * Whether that thread sleeps on the latch of a lock, where a message wakes it. A message that comes between its last
     * look at the lock and this sleep may be lost on it.
     */
    boolean sleeps(long number) {
        Worker worker = workers.get(number);
        if (worker == null) {
            return false;
        }
        boolean onLatch = Arrays.stream(worker.getStackTrace())
            .anyMatch(frame -> frame.getClassName().equals("java.util.concurrent.Semaphore"));
        Thread.State state = worker.getState();
        return onLatch && (state == Thread.State.WAITING || state == Thread.State.TIMED_WAITING);
    }

    /** Ends all threads. Those that wait for a lock find their client shut down. */
    void end() {
        workers.values().forEach(Worker::end);
    }

    /**
     * A thread with a chosen id: Redisson takes the id of the calling thread for the holder, so a lock taken on
     * logical thread 7 is held by {@code <client id>:7} in Redis.
     */
    static class Numbered extends Thread {
        private final long number;

        Numbered(long number, Runnable work) {
            super(null, work, "logical-" + number, 256 * 1024);
            this.number = number;
            setDaemon(true);
        }

        @Override
        @SuppressWarnings("all")
        public long getId() {
            return number;
        }
    }

    private static final class Worker extends Numbered {
        final BlockingQueue<Runnable> queue = new LinkedBlockingQueue<>();
        private boolean busy;
        private volatile boolean ended;

        Worker(long number) {
            super(number, null);
        }

        @Override
        public void run() {
            while (!ended) {
                Runnable work;
                try {
                    work = queue.take();
                } catch (InterruptedException e) {
                    continue;
                }
                setBusy(true);
                try {
                    work.run();
                } finally {
                    setBusy(false);
                }
            }
        }

        void end() {
            ended = true;
            interrupt();
        }

        private synchronized void setBusy(boolean now) {
            busy = now;
            // An interrupt is for the work that was running, not for the next.
            Thread.interrupted();
        }

        synchronized boolean interruptWork() {
            if (busy) {
                interrupt();
            }
            return busy;
        }
    }
}
