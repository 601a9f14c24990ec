package distlock.interop;

import java.util.List;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ExecutorService;
import org.redisson.api.RedissonClient;

/** One Redisson client, or one for each of several servers, with its own logical threads and lock objects. */
final class Session {
    private final List<RedissonClient> clients;
    private final Answers answers;
    private final LockOps lockOps;
    private final OtherOps otherOps;
    private final Bench bench;
    private final Holder holder;
    private final Fleet fleet;
    private final LogicalThreads threads = new LogicalThreads();

    Session(List<RedissonClient> clients, Answers answers) {
        this.clients = clients;
        this.answers = answers;
        Locks locks = new Locks(clients);
        lockOps = new LockOps(locks);
        otherOps = new OtherOps(clients.get(0));
        bench = new Bench(clients.get(0), locks);
        holder = new Holder(locks);
        fleet = new Fleet(locks);
    }

    List<String> ids() {
        return clients.stream().map(RedissonClient::getId).toList();
    }

    void close() {
        clients.forEach(RedissonClient::shutdown);
        threads.end();
    }

    void dispatch(Request request, ExecutorService background) {
        switch (request.op()) {
            case "lock_as", "try_lock_as", "unlock_as" -> runAsync(request);
            case "bench_uncontended" -> background.execute(() -> answers.run(request, () -> bench.uncontended(request)));
            case "bench_contended" -> background.execute(() -> answers.run(request, () -> bench.contended(request)));
            case "hold_many" -> background.execute(() -> answers.run(request, () -> holder.hold(request)));
            case "release_many" -> background.execute(() -> answers.run(request, () -> holder.release(request)));
            case "fleet_loop" -> background.execute(() -> answers.run(request, () -> fleet.loop(request)));
            case "interrupt" -> answers.run(request, () -> threads.interrupt(request.thread()));
            case "sleeps" -> answers.run(request, () -> threads.sleeps(request.thread()));
            default -> threads.submit(request.thread(), () -> answers.run(request, () -> onThread(request)));
        }
    }

    private Object onThread(Request request) throws Exception {
        return switch (request.op()) {
            case "counter_loop" -> bench.counterLoop(request);
            default -> OtherOps.handles(request.op()) ? otherOps.run(request) : lockOps.run(request);
        };
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
