package distlock.interop;

import java.util.ArrayList;
import java.util.List;

/** The command line. Zero or an empty text stands for Redisson's own default. */
final class Options {
    private static final String CLUSTER = "redis-cluster://";

    final List<String> urls = new ArrayList<>();
    String mode = "single";
    String master = "";
    String username = "";
    String password = "";
    String prefix = "";
    String codec = "string";
    long watchdogMs;
    long fairWaitMs;
    int timeoutMs;
    int retries = -1;
    int threads;
    int nettyThreads;
    int idle;
    int pool;
    int scanMs;

    static Options parse(String[] args) {
        Options options = new Options();
        for (int i = 0; i < args.length; i += 2) {
            if (i + 1 == args.length) {
                throw new IllegalArgumentException(args[i] + " needs a value");
            }
            options.set(args[i], args[i + 1]);
        }
        if (options.urls.isEmpty()) {
            throw new IllegalArgumentException("--url is needed");
        }
        if (options.urls.get(0).startsWith(CLUSTER)) {
            options.mode = "cluster";
            options.urls.replaceAll(url -> "redis://" + url.replace(CLUSTER, ""));
        }
        return options;
    }

    private void set(String name, String value) {
        switch (name) {
            case "--url" -> urls.addAll(List.of(value.split(",")));
            case "--mode" -> mode = value;
            case "--master" -> master = value;
            case "--username" -> username = value;
            case "--password" -> password = value;
            case "--prefix" -> prefix = value;
            case "--codec" -> codec = value;
            case "--watchdog" -> watchdogMs = Long.parseLong(value);
            case "--fair-wait" -> fairWaitMs = Long.parseLong(value);
            case "--timeout" -> timeoutMs = Integer.parseInt(value);
            case "--retries" -> retries = Integer.parseInt(value);
            case "--threads" -> threads = Integer.parseInt(value);
            case "--netty-threads" -> nettyThreads = Integer.parseInt(value);
            case "--idle" -> idle = Integer.parseInt(value);
            case "--pool" -> pool = Integer.parseInt(value);
            case "--scan" -> scanMs = Integer.parseInt(value);
            default -> throw new IllegalArgumentException("unknown option " + name);
        }
    }
}
