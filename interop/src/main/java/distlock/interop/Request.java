package distlock.interop;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.util.ArrayList;
import java.util.List;

/** A request: the JSON object, its number, and its operation. */
record Request(JsonObject body, long id, String op) {

    private JsonElement find(String field) {
        JsonElement value = body.get(field);
        return value == null || value.isJsonNull() ? null : value;
    }

    boolean has(String field) {
        return find(field) != null;
    }

    long number(String field) {
        JsonElement value = find(field);
        if (value == null) {
            throw new IllegalArgumentException(op + " needs \"" + field + "\"");
        }
        return value.getAsLong();
    }

    long number(String field, long otherwise) {
        JsonElement value = find(field);
        return value == null ? otherwise : value.getAsLong();
    }

    double real(String field, double otherwise) {
        JsonElement value = find(field);
        return value == null ? otherwise : value.getAsDouble();
    }

    boolean flag(String field) {
        JsonElement value = find(field);
        return value != null && value.getAsBoolean();
    }

    String text(String field) {
        JsonElement value = find(field);
        if (value == null) {
            throw new IllegalArgumentException(op + " needs \"" + field + "\"");
        }
        return value.getAsString();
    }

    String text(String field, String otherwise) {
        JsonElement value = find(field);
        return value == null ? otherwise : value.getAsString();
    }

    List<String> texts(String field) {
        JsonElement value = find(field);
        if (value == null) {
            throw new IllegalArgumentException(op + " needs \"" + field + "\"");
        }
        List<String> all = new ArrayList<>();
        value.getAsJsonArray().forEach(each -> all.add(each.getAsString()));
        return all;
    }

    /** Empty if not given. */
    List<Long> numbers(String field) {
        List<Long> all = new ArrayList<>();
        if (has(field)) {
            find(field).getAsJsonArray().forEach(each -> all.add(each.getAsLong()));
        }
        return all;
    }

    /** The logical thread; 1 if not given. */
    long thread() {
        return number("thread", 1);
    }

    /** The thread id for the asynchronous calls. */
    long tid() {
        return has("tid") ? number("tid") : thread();
    }
}
