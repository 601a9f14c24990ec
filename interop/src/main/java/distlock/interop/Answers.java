package distlock.interop;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import java.io.PrintStream;
import java.util.List;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;

/** Writes answers from any thread, as whole lines. */
final class Answers {
    private final Gson gson = new GsonBuilder().serializeNulls().disableHtmlEscaping().create();
    private final PrintStream out;

    Answers(PrintStream out) {
        this.out = out;
    }

    void ready(List<String> clientIds, String version) {
        JsonObject answer = new JsonObject();
        answer.addProperty("ready", true);
        answer.add("ids", gson.toJsonTree(clientIds));
        answer.addProperty("version", version);
        write(answer);
    }

    void notReady(Throwable e) {
        JsonObject answer = new JsonObject();
        answer.addProperty("ready", false);
        describe(answer, e);
        write(answer);
    }

    void malformed(String line, Exception e) {
        JsonObject answer = new JsonObject();
        answer.add("id", JsonNull.INSTANCE);
        answer.addProperty("ok", false);
        answer.addProperty("error", "Malformed");
        answer.addProperty("message", e + " in: " + line);
        write(answer);
    }

    /** Work that may fail; its value goes into the answer. */
    interface Work {
        Object call() throws Exception;
    }

    /** Does the work on this thread and answers the request. */
    void run(Request request, Work work) {
        long start = System.nanoTime();
        Object value;
        try {
            value = work.call();
        } catch (Throwable e) {
            failed(request, e, start, System.nanoTime());
            return;
        }
        done(request, value, start, System.nanoTime());
    }

    void done(Request request, Object value, long start, long end) {
        JsonObject answer = new JsonObject();
        answer.addProperty("id", request.id());
        answer.addProperty("ok", true);
        answer.add("value", gson.toJsonTree(value));
        finish(answer, start, end);
    }

    void failed(Request request, Throwable e, long start, long end) {
        JsonObject answer = new JsonObject();
        answer.addProperty("id", request.id());
        answer.addProperty("ok", false);
        describe(answer, e);
        finish(answer, start, end);
    }

    private void finish(JsonObject answer, long start, long end) {
        answer.addProperty("t0", start);
        answer.addProperty("t1", end);
        write(answer);
    }

    private static void describe(JsonObject answer, Throwable e) {
        Throwable cause = e;
        while ((cause instanceof CompletionException || cause instanceof ExecutionException)
                && cause.getCause() != null) {
            cause = cause.getCause();
        }
        answer.addProperty("error", cause.getClass().getSimpleName());
        StringBuilder message = new StringBuilder(String.valueOf(cause.getMessage()));
        for (Throwable beneath = cause.getCause(); beneath != null; beneath = beneath.getCause()) {
            message.append(", by ").append(beneath.getClass().getSimpleName()).append(": ").append(beneath.getMessage());
        }
        answer.addProperty("message", message.toString());
    }

    private void write(JsonObject answer) {
        String line = gson.toJson(answer);
        synchronized (out) {
            out.print(line);
            out.print('\n');
            out.flush();
        }
    }
}
