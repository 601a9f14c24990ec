package distlock.interop;

import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.BaseConfig;
import org.redisson.config.BaseMasterSlaveServersConfig;
import org.redisson.config.ClusterServersConfig;
import org.redisson.config.Config;
import org.redisson.config.ReplicatedServersConfig;
import org.redisson.config.SentinelServersConfig;
import org.redisson.config.SingleServerConfig;

/** Makes Redisson clients from the options. An omitted option keeps Redisson's default. */
final class Connection {
    private Connection() {}

    /** Opens one client, or in the mode "single" one client for each of several independent servers. */
    static List<RedissonClient> open(Options options) throws ReflectiveOperationException, IOException {
        if (!options.yaml.isEmpty()) {
            // Only this file counts; the other options are ignored.
            return List.of(Redisson.create(Config.fromYAML(new File(options.yaml))));
        }
        List<RedissonClient> clients = new ArrayList<>();
        int count = options.mode.equals("single") ? options.urls.size() : 1;
        for (int server = 0; server < count; server++) {
            clients.add(open(options, server));
        }
        return clients;
    }

    private static RedissonClient open(Options options, int which) throws ReflectiveOperationException {
        Config config = new Config();
        if (options.codec.equals("string")) {
            // Of all locks, only the faster multi-lock depends on the codec in its wire form.
            config.setCodec(StringCodec.INSTANCE);
        }
        if (options.threads > 0) {
            config.setThreads(options.threads);
        }
        if (options.nettyThreads > 0) {
            config.setNettyThreads(options.nettyThreads);
        }
        if (options.watchdogMs > 0) {
            config.setLockWatchdogTimeout(options.watchdogMs);
        }
        if (options.fairWaitMs > 0) {
            config.setFairLockWaitTimeout(options.fairWaitMs);
        }
        if (!options.checkSynced.isEmpty()) {
            config.setCheckLockSyncedSlaves(Boolean.parseBoolean(options.checkSynced));
        }
        if (options.syncTimeoutMs > 0) {
            config.setSlavesSyncTimeout(options.syncTimeoutMs);
        }

        BaseConfig<?> server = switch (options.mode) {
            case "single" -> single(config.useSingleServer(), options, which);
            case "cluster" -> {
                ClusterServersConfig cluster = config.useClusterServers();
                cluster.addNodeAddress(options.urls.toArray(String[]::new));
                if (options.scanMs > 0) {
                    cluster.setScanInterval(options.scanMs);
                }
                yield pools(cluster, options);
            }
            case "sentinel" -> {
                SentinelServersConfig sentinel = config.useSentinelServers();
                sentinel.addSentinelAddress(options.urls.toArray(String[]::new));
                sentinel.setMasterName(options.master);
                sentinel.setCheckSentinelsList(false);
                if (!options.sentinelUsername.isEmpty()) {
                    sentinel.setSentinelUsername(options.sentinelUsername);
                }
                if (!options.sentinelPassword.isEmpty()) {
                    sentinel.setSentinelPassword(options.sentinelPassword);
                }
                if (options.scanMs > 0) {
                    sentinel.setScanInterval(options.scanMs);
                }
                yield pools(sentinel, options);
            }
            case "replicated" -> {
                ReplicatedServersConfig replicated = config.useReplicatedServers();
                replicated.addNodeAddress(options.urls.toArray(String[]::new));
                if (options.scanMs > 0) {
                    replicated.setScanInterval(options.scanMs);
                }
                yield pools(replicated, options);
            }
            default -> throw new IllegalArgumentException("--mode is single, cluster, sentinel or replicated");
        };
        if (!options.username.isEmpty()) {
            server.setUsername(options.username);
        }
        if (!options.password.isEmpty()) {
            server.setPassword(options.password);
        }
        if (options.timeoutMs > 0) {
            server.setTimeout(options.timeoutMs);
            server.setSubscriptionTimeout(Math.max(server.getSubscriptionTimeout(), options.timeoutMs));
        }
        if (options.retries >= 0) {
            server.setRetryAttempts(options.retries);
        }
        if (!options.prefix.isEmpty()) {
            mapNames(config, server, options.prefix);
        }
        return Redisson.create(config);
    }

    private static BaseConfig<?> single(SingleServerConfig server, Options options, int which) {
        server.setAddress(options.urls.get(which));
        if (options.pool > 0) {
            server.setConnectionPoolSize(options.pool);
        }
        if (options.idle > 0) {
            server.setConnectionMinimumIdleSize(options.idle);
        }
        return server;
    }

    private static BaseConfig<?> pools(BaseMasterSlaveServersConfig<?> servers, Options options) {
        if (options.pool > 0) {
            servers.setMasterConnectionPoolSize(options.pool);
            servers.setSlaveConnectionPoolSize(options.pool);
        }
        if (options.idle > 0) {
            servers.setMasterConnectionMinimumIdleSize(options.idle);
            servers.setSlaveConnectionMinimumIdleSize(options.idle);
        }
        return servers;
    }

    /** Redisson 4 moved the mapper's type and its setter, so both are looked up by name. */
    private static void mapNames(Config config, BaseConfig<?> server, String prefix)
            throws ReflectiveOperationException {
        Method setter;
        Object target;
        Method onConfig = setter(config.getClass());
        if (onConfig != null) {
            setter = onConfig;
            target = config;
        } else {
            setter = setter(BaseConfig.class);
            target = server;
        }
        Class<?> type = setter.getParameterTypes()[0];
        Object mapper = Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type}, (self, method, args) ->
            switch (method.getName()) {
                case "map" -> prefix + args[0];
                case "unmap" -> {
                    String name = (String) args[0];
                    yield name.startsWith(prefix) ? name.substring(prefix.length()) : name;
                }
                case "hashCode" -> System.identityHashCode(self);
                case "equals" -> self == args[0];
                default -> "prefix " + prefix;
            });
        setter.invoke(target, mapper);
    }

    private static Method setter(Class<?> owner) {
        for (Method method : owner.getMethods()) {
            if (method.getName().equals("setNameMapper") && method.getParameterCount() == 1) {
                return method;
            }
        }
        return null;
    }

    static String version() {
        String path = "/META-INF/maven/org.redisson/redisson/pom.properties";
        try (InputStream in = Redisson.class.getResourceAsStream(path)) {
            Properties properties = new Properties();
            properties.load(in);
            return properties.getProperty("version");
        } catch (Exception e) {
            return "unknown";
        }
    }
}
