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
 * The lock objects by flavour and name. An object is kept once made, as a Java program would keep it in a field: a
 * Redisson lock object remembers the last lease used through it. {@code "fresh": true} makes a new object.
 */
final class Locks {
    private final List<RedissonClient> clients;
    private final Map<String, RLock> kept = new ConcurrentHashMap<>();

    Locks(List<RedissonClient> clients) {
        this.clients = clients;
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
        String where = request.numbers("servers") + "\n" + request.number("server", 0);
        String members = request.text("member", "") + '\n' + where;
        String key = flavour + '\n' + name + '\n' + String.join("\n", names) + '\n' + members;
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
            case "multi" -> clients.get(0).getMultiLock(members(request, names));
            case "red" -> clients.get(0).getRedLock(members(request, names));
            case "faster_multi" -> clients.get(0).getMultiLock(name, new ArrayList<Object>(names));
            default -> single(server(request.number("server", 0)), flavour, name);
        };
    }

    private RLock[] members(Request request, List<String> names) {
        String flavour = request.text("member", "reentrant");
        List<Long> servers = request.numbers("servers");
        RLock[] members = new RLock[names.size()];
        for (int i = 0; i < members.length; i++) {
            members[i] = single(server(servers.isEmpty() ? 0 : servers.get(i)), flavour, names.get(i));
        }
        return members;
    }

    private RedissonClient server(long number) {
        return clients.get((int) number);
    }

    /** Makes a new lock object on the first server. */
    RLock single(String flavour, String name) {
        return single(clients.get(0), flavour, name);
    }

    private static RLock single(RedissonClient client, String flavour, String name) {
        return switch (flavour) {
            case "reentrant" -> client.getLock(name);
            case "fair" -> client.getFairLock(name);
            case "read" -> client.getReadWriteLock(name).readLock();
            case "write" -> client.getReadWriteLock(name).writeLock();
            case "spin" -> client.getSpinLock(name);
            case "fenced" -> client.getFencedLock(name);
            // Redisson has these since 4.4.0; the agent must also compile with older versions.
            case "nonreentrant" -> byMethod(client, "getNonReentrantLock", name);
            case "nonreentrant_fair" -> byMethod(client, "getNonReentrantFairLock", name);
            default -> throw new IllegalArgumentException("no flavour " + flavour);
        };
    }

    private static RLock byMethod(RedissonClient client, String method, String name) {
        try {
            return (RLock) RedissonClient.class.getMethod(method, String.class).invoke(client, name);
        } catch (NoSuchMethodException e) {
            throw new UnsupportedOperationException("this Redisson has no " + method);
        } catch (InvocationTargetException | IllegalAccessException e) {
            throw new IllegalStateException(e);
        }
    }
}
