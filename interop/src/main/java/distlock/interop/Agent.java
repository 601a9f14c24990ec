package distlock.interop;

import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * Runs any number of Redisson clients on request: one JSON request per line on standard input, one answer per line on
 * standard output, in the order of completion. README.md describes the protocol.
 *
 * <p>The end of standard input ends the process at once, without a word to Redis. So an agent never outlives its parent,
 * and its locks stay as a crashed client would leave them.
 */
public final class Agent {
    private final Answers answers;
    private final Map<Long, Session> sessions = new ConcurrentHashMap<>();
    private final ExecutorService background = Executors.newCachedThreadPool(work -> {
        Thread thread = new Thread(work, "background");
        thread.setDaemon(true);
        return thread;
    });

    private Agent(Answers answers) {
        this.answers = answers;
    }

    /** Opens client 0 first if there are arguments, which are its options. */
    public static void main(String[] args) throws IOException {
        // Only answers may go to standard output, so every other print goes to standard error.
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
        System.setOut(System.err);
        Answers answers = new Answers(out);

        Agent agent = new Agent(answers);
        List<String> ids = List.of();
        if (args.length > 0) {
            try {
                ids = agent.open(0, List.of(args));
            } catch (Throwable e) {
                answers.notReady(e);
                Runtime.getRuntime().halt(2);
                return;
            }
        }
        answers.ready(ids, Connection.version());
        agent.serve();
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

    /** Hands a request to a thread that may block; does not block itself. */
    private void dispatch(Request request) {
        long client = request.number("client", 0);
        switch (request.op()) {
            case "open" -> inBackground(request, () -> open(client, request.texts("args")));
            case "close" -> inBackground(request, () -> close(client));
            case "mem" -> inBackground(request, Holder::usedHeap);
            case "ping" -> answers.run(request, () -> "pong");
            default -> {
                Session session = sessions.get(client);
                if (session == null) {
                    answers.run(request, () -> {
                        throw new IllegalStateException("client " + client + " is not open");
                    });
                } else {
                    session.dispatch(request, background);
                }
            }
        }
    }

    private void inBackground(Request request, Answers.Work work) {
        background.execute(() -> answers.run(request, work));
    }

    private List<String> open(long client, List<String> args) throws Exception {
        Session session = new Session(Connection.open(Options.parse(args)), answers);
        sessions.put(client, session);
        return session.ids();
    }

    /** Unlocks nothing: the client's locks end with their leases. */
    private boolean close(long client) {
        Session session = sessions.remove(client);
        if (session != null) {
            session.close();
        }
        return session != null;
    }
}
