package distlock.interop;

import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.redisson.api.RedissonClient;

/**
 * A Redisson client, or one for each of several servers, that does what it is told: a JSON object a line on standard
 * input, an answer a line on standard output, in the order in which they are done. The protocol is in README.md.
 *
 * <p>The end of standard input ends the process at once, without a word to Redis: so an agent never outlives its parent,
 * and what it held is left as a crashed client would leave it.
 */
public final class Agent {
    private final Answers answers;
    private final List<RedissonClient> clients;
    private final Locks locks;
    private final LockOps lockOps;
    private final OtherOps otherOps;
    private final Bench bench;
    private final Holder holder;
    private final LogicalThreads threads = new LogicalThreads();
    private final ExecutorService background = Executors.newCachedThreadPool(work -> {
        Thread thread = new Thread(work, "background");
        thread.setDaemon(true);
        return thread;
    });

    private Agent(List<RedissonClient> clients, Answers answers) {
        this.clients = clients;
        this.answers = answers;
        locks = new Locks(clients);
        RedissonClient client = clients.get(0);
        lockOps = new LockOps(locks);
        otherOps = new OtherOps(client);
        bench = new Bench(client, locks);
        holder = new Holder(locks);
    }

    public static void main(String[] args) throws IOException {
        // Nobody else's print may end up among the answers.
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
        System.setOut(System.err);
        Answers answers = new Answers(out);

        List<RedissonClient> clients;
        try {
            clients = Connection.open(Options.parse(args));
        } catch (Throwable e) {
            answers.notReady(e);
            Runtime.getRuntime().halt(2);
            return;
        }
        long upMs = ManagementFactory.getRuntimeMXBean().getUptime();
        List<String> ids = clients.stream().map(RedissonClient::getId).toList();
        answers.ready(ids, Connection.version(), upMs);
        new Agent(clients, answers).serve();
        Runtime.getRuntime().halt(0);
    }

    private void serve() throws IOException {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            if (line.isBlank()) {
                continue;
            }
            Request request;
            try {
                JsonObject object = JsonParser.parseString(line).getAsJsonObject();
                request = new Request(object, object.get("id").getAsLong(), object.get("op").getAsString());
            } catch (RuntimeException e) {
                answers.malformed(line, e);
                continue;
            }
            dispatch(request);
        }
    }

    /** Hands a request to whoever can block on it; never blocks itself. */
    private void dispatch(Request request) {
        switch (request.op()) {
            case "lock_as", "try_lock_as", "unlock_as" -> runAsync(request);
            case "bench_uncontended" -> background.execute(() -> run(request, () -> bench.uncontended(request)));
            case "bench_contended" -> background.execute(() -> run(request, () -> bench.contended(request)));
            case "hold_many" -> background.execute(() -> run(request, () -> holder.hold(request)));
            case "release_many" -> background.execute(() -> run(request, () -> holder.release(request)));
            case "mem" -> background.execute(() -> run(request, Holder::usedHeap));
            case "interrupt" -> run(request, () -> threads.interrupt(request.thread()));
            case "ping" -> run(request, () -> "pong");
            case "shutdown" -> background.execute(() -> {
                run(request, () -> {
                    clients.forEach(RedissonClient::shutdown);
                    return true;
                });
                Runtime.getRuntime().halt(0);
            });
            case "counter_loop" ->
                threads.submit(request.thread(), () -> run(request, () -> bench.counterLoop(request)));
            case "token_loop" ->
                threads.submit(request.thread(), () -> run(request, () -> bench.tokenLoop(request)));
            default -> threads.submit(request.thread(), () -> run(request, () -> onThread(request)));
        }
    }

    private Object onThread(Request request) throws Exception {
        return OtherOps.handles(request.op()) ? otherOps.run(request) : lockOps.run(request);
    }

    /** Something that can fail and has a value to answer with. */
    interface Work {
        Object call() throws Exception;
    }

    private void run(Request request, Work work) {
        long start = System.nanoTime();
        Object value;
        try {
            value = work.call();
        } catch (Throwable e) {
            answers.failed(request, e, start, System.nanoTime());
            return;
        }
        answers.done(request, value, start, System.nanoTime());
    }

    private void runAsync(Request request) {
        long start = System.nanoTime();
        CompletionStage<?> stage;
        try {
            stage = lockOps.start(request);
        } catch (Throwable e) {
            answers.failed(request, e, start, System.nanoTime());
            return;
        }
        stage.whenComplete((value, error) -> {
            long end = System.nanoTime();
            if (error != null) {
                answers.failed(request, error, start, end);
            } else {
                answers.done(request, value == null ? Boolean.TRUE : value, start, end);
            }
        });
    }
}
