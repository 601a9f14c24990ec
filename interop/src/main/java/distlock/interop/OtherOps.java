package distlock.interop;

import static java.util.concurrent.TimeUnit.MILLISECONDS;

import java.lang.reflect.InvocationTargetException;
import java.time.Duration;
import org.redisson.api.RCountDownLatch;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;

/** The operations on semaphores, permit semaphores and latches. */
final class OtherOps {
    private final RedissonClient client;

    OtherOps(RedissonClient client) {
        this.client = client;
    }

    static boolean handles(String op) {
        return op.startsWith("sem_") || op.startsWith("permit_") || op.startsWith("latch_");
    }

    Object run(Request request) throws InterruptedException {
        String op = request.op();
        String name = request.text("name");
        if (op.startsWith("sem_")) {
            return semaphore(request, client.getSemaphore(name));
        }
        if (op.startsWith("permit_")) {
            return permits(request, client.getPermitExpirableSemaphore(name));
        }
        return latch(request, client.getCountDownLatch(name));
    }

    private static Object semaphore(Request request, RSemaphore semaphore) throws InterruptedException {
        int permits = (int) request.number("permits", 1);
        return switch (request.op()) {
            case "sem_set" -> request.has("ttl_ms")
                ? semaphore.trySetPermits(permits, Duration.ofMillis(request.number("ttl_ms")))
                : semaphore.trySetPermits(permits);
            case "sem_acquire" -> {
                semaphore.acquire(permits);
                yield true;
            }
            case "sem_try" -> request.has("wait_ms")
                ? semaphore.tryAcquire(permits, request.number("wait_ms"), MILLISECONDS)
                : semaphore.tryAcquire(permits);
            case "sem_release" -> {
                semaphore.release(permits);
                yield true;
            }
            case "sem_release_if_exists" -> releaseIfExists(semaphore, permits);
            case "sem_add" -> {
                semaphore.addPermits(permits);
                yield true;
            }
            case "sem_drain" -> semaphore.drainPermits();
            case "sem_available" -> semaphore.availablePermits();
            case "sem_delete" -> semaphore.delete();
            default -> throw new IllegalArgumentException("no op " + request.op());
        };
    }

    /** Redisson has this since 4.0.0; the agent must also compile with older versions. */
    private static Object releaseIfExists(RSemaphore semaphore, int permits) {
        try {
            return RSemaphore.class.getMethod("releaseIfExists", int.class).invoke(semaphore, permits);
        } catch (NoSuchMethodException e) {
            throw new UnsupportedOperationException("this Redisson has no releaseIfExists");
        } catch (InvocationTargetException | IllegalAccessException e) {
            throw new IllegalStateException(e);
        }
    }

    private static Object permits(Request request, RPermitExpirableSemaphore semaphore) throws InterruptedException {
        return switch (request.op()) {
            case "permit_set" -> semaphore.trySetPermits((int) request.number("permits"));
            case "permit_set_total" -> {
                semaphore.setPermits((int) request.number("permits"));
                yield true;
            }
            case "permit_add" -> {
                semaphore.addPermits((int) request.number("permits"));
                yield true;
            }
            case "permit_acquire" -> acquire(request, semaphore);
            case "permit_try" -> tryAcquire(request, semaphore);
            case "permit_release" -> {
                if (request.has("ids")) {
                    yield semaphore.tryRelease(request.texts("ids"));
                }
                yield semaphore.tryRelease(request.text("permit"));
            }
            case "permit_renew" -> semaphore.updateLeaseTime(
                request.text("permit"), request.number("lease_ms"), MILLISECONDS);
            case "permit_lease" -> semaphore.getLeaseTime(request.text("permit"));
            case "permit_available" -> semaphore.availablePermits();
            case "permit_acquired" -> semaphore.acquiredPermits();
            case "permit_total" -> semaphore.getPermits();
            case "permit_delete" -> semaphore.delete();
            default -> throw new IllegalArgumentException("no op " + request.op());
        };
    }

    /** Returns the id of one permit, or a list of ids if the request says how many permits. */
    private static Object acquire(Request request, RPermitExpirableSemaphore semaphore) throws InterruptedException {
        if (request.has("permits")) {
            int permits = (int) request.number("permits");
            return semaphore.acquire(permits, request.number("lease_ms", -1), MILLISECONDS);
        }
        return request.has("lease_ms")
            ? semaphore.acquire(request.number("lease_ms"), MILLISECONDS)
            : semaphore.acquire();
    }

    /** Returns null, or an empty list, if the permits are not free. */
    private static Object tryAcquire(Request request, RPermitExpirableSemaphore semaphore) throws InterruptedException {
        long wait = request.number("wait_ms", 0);
        long lease = request.number("lease_ms", -1);
        if (request.has("permits")) {
            return semaphore.tryAcquire((int) request.number("permits"), wait, lease, MILLISECONDS);
        }
        return semaphore.tryAcquire(wait, lease, MILLISECONDS);
    }

    private static Object latch(Request request, RCountDownLatch latch) throws InterruptedException {
        return switch (request.op()) {
            case "latch_set" -> latch.trySetCount(request.number("count"));
            case "latch_down" -> {
                latch.countDown();
                yield true;
            }
            case "latch_await" -> {
                if (request.has("wait_ms")) {
                    yield latch.await(request.number("wait_ms"), MILLISECONDS);
                }
                latch.await();
                yield true;
            }
            case "latch_count" -> latch.getCount();
            case "latch_delete" -> latch.delete();
            default -> throw new IllegalArgumentException("no op " + request.op());
        };
    }
}
