package distlock.interop;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import com.google.gson.JsonPrimitive;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Array;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.nio.charset.StandardCharsets;
import java.util.Collection;
import java.util.Map;
import org.redisson.config.Config;

/**
 * Reports how Redisson reads its own configuration: one YAML text per line on standard input, as a JSON string, and
 * one answer per line on standard output. Connects to nothing. README.md describes the protocol.
 */
public final class Configs {
    private Configs() {}

    public static void main(String[] args) throws IOException {
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
        System.setOut(System.err);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonObject answer = new JsonObject();
            try {
                Config config = Config.fromYAML(JsonParser.parseString(line).getAsString());
                answer.add("value", fields(config));
                answer.addProperty("ok", true);
            } catch (Throwable e) {
                answer.addProperty("ok", false);
                answer.addProperty("error", e.getClass().getSimpleName());
                answer.addProperty("message", innermost(e));
            }
            out.println(answer);
            out.flush();
        }
    }

    private static String innermost(Throwable e) {
        return e.getCause() == null ? String.valueOf(e.getMessage()) : innermost(e.getCause());
    }

    /** Returns the fields of a Redisson object without nulls, and its class name as {@code class}. */
    private static JsonObject fields(Object object) throws IllegalAccessException {
        JsonObject all = new JsonObject();
        all.addProperty("class", object.getClass().getSimpleName());
        for (Class<?> type = object.getClass(); type != null && ours(type); type = type.getSuperclass()) {
            for (Field field : type.getDeclaredFields()) {
                if (Modifier.isStatic(field.getModifiers())) {
                    continue;
                }
                field.setAccessible(true);
                Object value = field.get(object);
                if (value != null) {
                    all.add(field.getName(), json(value));
                }
            }
        }
        return all;
    }

    private static JsonElement json(Object value) throws IllegalAccessException {
        if (value instanceof Boolean is) {
            return new JsonPrimitive(is);
        }
        if (value instanceof Number number) {
            return new JsonPrimitive(number);
        }
        if (value instanceof Collection<?> || value.getClass().isArray()) {
            JsonArray list = new JsonArray();
            Object array = value instanceof Collection<?> collection ? collection.toArray() : value;
            for (int i = 0; i < Array.getLength(array); i++) {
                list.add(String.valueOf(Array.get(array, i)));
            }
            return list;
        }
        if (value instanceof Map<?, ?> map) {
            JsonObject pairs = new JsonObject();
            map.forEach((from, to) -> pairs.addProperty(String.valueOf(from), String.valueOf(to)));
            return pairs;
        }
        String name = value.getClass().getName();
        boolean plain = value instanceof Enum<?> || !name.startsWith("org.redisson.config.") && !name.contains("NatMapper");
        return plain ? new JsonPrimitive(String.valueOf(value)) : fields(value);
    }

    private static boolean ours(Class<?> type) {
        return type.getName().startsWith("org.redisson.");
    }
}
