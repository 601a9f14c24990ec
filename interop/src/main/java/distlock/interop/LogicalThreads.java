package distlock.interop;

import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;

/**
 * One Java thread per requested number. Work for one number runs in order on its thread; different numbers do not
 * wait for each other.
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

    /** Interrupts the current work of a thread. Returns false if the thread is idle. */
    boolean interrupt(long number) {
        Worker worker = workers.get(number);
        return worker != null && worker.interruptWork();
    }

    /**
     * Returns whether a thread sleeps on the latch of a lock, from which a message wakes it. If a message arrives
     * between the thread's last look at the lock and this sleep, the thread may miss it.
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

    /** Ends all threads. A thread that waits for a lock finds its client shut down. */
    void end() {
        workers.values().forEach(Worker::end);
    }

    /**
     * A thread with a chosen id. Redisson takes the id of the calling thread for the holder, so a lock taken on logical
     * thread 7 is held by {@code <client id>:7} in Redis.
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
            // An interrupt is meant for the work that just ran, not for the next.
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
