package distlock.interop;

import java.lang.reflect.InvocationTargetException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;

/**
 * The lock objects by flavour and name. An object is made once and kept, as a Java program would keep it in a field
 * (a Redisson lock object remembers the lease last used through it); {@code "fresh": true} asks for a new one.
 */
final class Locks {
    private final RedissonClient client;
    private final Map<String, RLock> kept = new ConcurrentHashMap<>();

    Locks(RedissonClient client) {
        this.client = client;
    }

    RLock of(Request request) {
        String flavour = request.text("flavour", "reentrant");
        boolean many = switch (flavour) {
            case "multi", "red", "faster_multi" -> true;
            default -> false;
        };
        List<String> names = many ? request.texts("names") : List.of();
        String name = many && !flavour.equals("faster_multi") ? "" : request.text("name");
        if (request.flag("fresh")) {
            return make(request, flavour, name, names);
        }
        String key = flavour + '\n' + name + '\n' + String.join("\n", names) + '\n' + request.text("member", "");
        return kept.computeIfAbsent(key, k -> make(request, flavour, name, names));
    }

    RFencedLock fenced(Request request) {
        RLock lock = of(request);
        if (lock instanceof RFencedLock fenced) {
            return fenced;
        }
        throw new IllegalArgumentException(request.op() + " is for the flavour fenced");
    }

    private RLock make(Request request, String flavour, String name, List<String> names) {
        return switch (flavour) {
            case "multi" -> client.getMultiLock(members(request, names));
            case "red" -> client.getRedLock(members(request, names));
            case "faster_multi" -> client.getMultiLock(name, new ArrayList<Object>(names));
            default -> single(flavour, name);
        };
    }

    private RLock[] members(Request request, List<String> names) {
        String flavour = request.text("member", "reentrant");
        return names.stream().map(name -> single(flavour, name)).toArray(RLock[]::new);
    }

    /** A new object for one name. */
    RLock single(String flavour, String name) {
        return switch (flavour) {
            case "reentrant" -> client.getLock(name);
            case "fair" -> client.getFairLock(name);
            case "read" -> client.getReadWriteLock(name).readLock();
            case "write" -> client.getReadWriteLock(name).writeLock();
            case "spin" -> client.getSpinLock(name);
            case "fenced" -> client.getFencedLock(name);
            // Since 4.4.0.
            case "nonreentrant" -> byMethod("getNonReentrantLock", name);
            case "nonreentrant_fair" -> byMethod("getNonReentrantFairLock", name);
            default -> throw new IllegalArgumentException("no flavour " + flavour);
        };
    }

    private RLock byMethod(String method, String name) {
        try {
            return (RLock) RedissonClient.class.getMethod(method, String.class).invoke(client, name);
        } catch (NoSuchMethodException e) {
            throw new UnsupportedOperationException("this Redisson has no " + method);
        } catch (InvocationTargetException | IllegalAccessException e) {
            throw new IllegalStateException(e);
        }
    }
}
