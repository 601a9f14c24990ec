package distlock.interop;

import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The options of a client. Zero or an empty text means Redisson's own default. */
final class Options {
    /** {@code redis-sentinel://user:password@host:port,host:port/name}; only the mode and one host are required. */
    private static final Pattern SEVERAL = Pattern.compile(
        "(rediss?)-(cluster|sentinel|replicated)://(?:([^@/]*)@)?([^@/]+)(?:/(.*))?");

    final List<String> urls = new ArrayList<>();
    String mode = "single";
    String yaml = "";
    String master = "";
    String username = "";
    String password = "";
    String sentinelUsername = "";
    String sentinelPassword = "";
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
    String checkSynced = "";
    long syncTimeoutMs;

    static Options parse(List<String> args) {
        Options options = new Options();
        for (int i = 0; i < args.size(); i += 2) {
            if (i + 1 == args.size()) {
                throw new IllegalArgumentException(args.get(i) + " needs a value");
            }
            options.set(args.get(i), args.get(i + 1));
        }
        if (options.urls.isEmpty()) {
            throw new IllegalArgumentException("--url is needed");
        }
        options.several();
        return options;
    }

    /** Takes the mode, the login and the name of the set from a URL for several servers. */
    private void several() {
        Matcher url = SEVERAL.matcher(String.join(",", urls));
        if (!url.matches()) {
            return;
        }
        mode = url.group(2);
        if (url.group(3) != null) {
            String[] login = url.group(3).split(":", 2);
            username = decoded(login[0]);
            password = login.length > 1 ? decoded(login[1]) : "";
        }
        if (url.group(5) != null) {
            master = url.group(5);
        }
        urls.clear();
        for (String host : url.group(4).split(",")) {
            urls.add(url.group(1) + "://" + host);
        }
    }

    private static String decoded(String text) {
        return URLDecoder.decode(text.replace("+", "%2B"), StandardCharsets.UTF_8);
    }

    private void set(String name, String value) {
        switch (name) {
            case "--url" -> urls.addAll(List.of(value.split(",")));
            case "--mode" -> mode = value;
            case "--yaml" -> yaml = value;
            case "--master" -> master = value;
            case "--username" -> username = value;
            case "--password" -> password = value;
            case "--sentinel-username" -> sentinelUsername = value;
            case "--sentinel-password" -> sentinelPassword = value;
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
            case "--check-synced" -> checkSynced = value;
            case "--sync-timeout" -> syncTimeoutMs = Long.parseLong(value);
            default -> throw new IllegalArgumentException("unknown option " + name);
        }
    }
}
