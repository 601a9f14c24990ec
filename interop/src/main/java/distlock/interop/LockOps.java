package distlock.interop;

import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static java.util.concurrent.TimeUnit.SECONDS;

import java.time.Duration;
import java.util.concurrent.CompletionStage;
import org.redisson.api.RExpirable;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RObject;

/** The operations on locks of all flavours. */
final class LockOps {
    private final Locks locks;

    LockOps(Locks locks) {
        this.locks = locks;
    }

    /** Runs an operation on the calling thread, which Redisson takes for the holder. */
    Object run(Request request) throws InterruptedException {
        return switch (request.op()) {
            case "lock" -> lock(request);
            case "try_lock" -> tryLock(request);
            case "unlock" -> {
                locks.of(request).unlock();
                yield true;
            }
            case "force_unlock" -> locks.of(request).forceUnlock();
            case "is_locked" -> locks.of(request).isLocked();
            case "is_held" -> locks.of(request).isHeldByCurrentThread();
            case "is_held_by_thread" -> locks.of(request).isHeldByThread(request.tid());
            case "hold_count" -> locks.of(request).getHoldCount();
            case "ttl" -> locks.of(request).remainTimeToLive();
            case "lock_token" -> lockToken(request);
            case "token" -> locks.fenced(request).getToken();
            // The lock objects implement these interfaces, but RLock does not extend them.
            case "delete" -> ((RObject) locks.of(request)).delete();
            case "expire" -> ((RExpirable) locks.of(request)).expire(Duration.ofMillis(request.number("lease_ms")));
            default -> throw new IllegalArgumentException("no op " + request.op());
        };
    }

    private Object lock(Request request) throws InterruptedException {
        RLock lock = locks.of(request);
        boolean leased = request.has("lease_ms");
        if (request.flag("interruptibly")) {
            if (leased) {
                lock.lockInterruptibly(request.number("lease_ms"), MILLISECONDS);
            } else {
                lock.lockInterruptibly();
            }
        } else if (leased) {
            lock.lock(request.number("lease_ms"), MILLISECONDS);
        } else if (request.has("lease_s")) {
            lock.lock(request.number("lease_s"), SECONDS);
        } else {
            lock.lock();
        }
        return true;
    }

    private Object tryLock(Request request) throws InterruptedException {
        RLock lock = locks.of(request);
        if (request.has("lease_ms")) {
            return lock.tryLock(request.number("wait_ms", 0), request.number("lease_ms"), MILLISECONDS);
        }
        if (request.has("wait_ms")) {
            return lock.tryLock(request.number("wait_ms"), MILLISECONDS);
        }
        // A fair lock ignores the unit here and takes the number for milliseconds.
        if (request.has("wait_s")) {
            return lock.tryLock(request.number("wait_s"), SECONDS);
        }
        return lock.tryLock();
    }

    private Object lockToken(Request request) {
        RFencedLock lock = locks.fenced(request);
        if (request.flag("try")) {
            return lock.tryLockAndGetToken();
        }
        if (request.has("wait_ms")) {
            return lock.tryLockAndGetToken(request.number("wait_ms"), request.number("lease_ms", -1), MILLISECONDS);
        }
        if (request.has("lease_ms")) {
            return lock.lockAndGetToken(request.number("lease_ms"), MILLISECONDS);
        }
        return lock.lockAndGetToken();
    }

    /** Starts an operation for the thread id that the request names. No thread waits for it. */
    CompletionStage<?> start(Request request) {
        RLock lock = locks.of(request);
        long tid = request.tid();
        boolean leased = request.has("lease_ms");
        return switch (request.op()) {
            case "lock_as" -> leased
                ? lock.lockAsync(request.number("lease_ms"), MILLISECONDS, tid)
                : lock.lockAsync(tid);
            case "try_lock_as" -> leased || request.has("wait_ms")
                ? lock.tryLockAsync(request.number("wait_ms", 0), request.number("lease_ms", -1), MILLISECONDS, tid)
                : lock.tryLockAsync(tid);
            case "unlock_as" -> lock.unlockAsync(tid);
            default -> throw new IllegalArgumentException("no op " + request.op());
        };
    }
}
