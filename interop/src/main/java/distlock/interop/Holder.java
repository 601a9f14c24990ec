package distlock.interop;

import java.util.concurrent.CompletionStage;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Function;
import org.redisson.api.RLock;

/** Takes and releases locks by the thousand, for tests of renewal and memory. */
final class Holder {
    /** Maximum number of commands in flight. */
    private static final int WINDOW = 1000;

    private final Locks locks;

    Holder(Locks locks) {
        this.locks = locks;
    }

    Object hold(Request request) throws Exception {
        long tid = request.tid();
        return each(request, lock -> lock.lockAsync(tid));
    }

    Object release(Request request) throws Exception {
        long tid = request.tid();
        return each(request, lock -> lock.unlockAsync(tid));
    }

    private Object each(Request request, Function<RLock, CompletionStage<?>> action) throws Exception {
        String flavour = request.text("flavour", "reentrant");
        String prefix = request.text("prefix");
        long count = request.number("count");
        Semaphore window = new Semaphore(WINDOW);
        AtomicReference<Throwable> failure = new AtomicReference<>();
        for (long i = 0; i < count; i++) {
            window.acquire();
            action.apply(locks.single(flavour, prefix + i)).whenComplete((value, error) -> {
                if (error != null) {
                    failure.compareAndSet(null, error);
                }
                window.release();
            });
        }
        window.acquire(WINDOW);
        if (failure.get() != null) {
            throw new java.util.concurrent.ExecutionException(failure.get());
        }
        return count;
    }

    /** Returns the bytes of heap in use after a collection. */
    static Object usedHeap() {
        Runtime runtime = Runtime.getRuntime();
        System.gc();
        System.gc();
        return runtime.totalMemory() - runtime.freeMemory();
    }
}
