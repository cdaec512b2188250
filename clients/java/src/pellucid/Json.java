package pellucid;

import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** JSON as Map, List, String, Double, Boolean and null: the Java library has none. */
final class Json {
    private static final int DEPTH_LIMIT = 100;
    private static final Pattern NUMBER = Pattern.compile("-?(?:0|[1-9][0-9]*)(?:\\.[0-9]+)?(?:[eE][+-]?[0-9]+)?");
    private final String text;
    private int at;

    private Json(String text) { this.text = text; }

    /** Parse UTF-8 bytes; a Failure when they are not UTF-8, not JSON, or nested too deep. */
    static Object parse(byte[] bytes) {
        Json json;
        try {
            json = new Json(StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(bytes)).toString());
        } catch (CharacterCodingException notUtf8) {
            throw Failure.unreadable("UTF-8");
        }
        Object value = json.value(0);
        json.skipSpace();
        if (json.at < json.text.length()) throw Failure.unreadable("JSON");
        return value;
    }

    /** A member of what may be an object; null when there is none. */
    static Object member(Object object, String name) {
        return object instanceof Map<?, ?> members ? members.get(name) : null;
    }

    static String quote(String text) {
        StringBuilder quoted = new StringBuilder("\"");
        for (int i = 0; i < text.length(); i++) {
            char c = text.charAt(i);
            int known = "\"\\\b\f\n\r\t".indexOf(c);
            if (known >= 0) quoted.append('\\').append("\"\\bfnrt".charAt(known));
            else if (c < 0x20) quoted.append(String.format("\\u%04x", (int) c));
            else quoted.append(c);
        }
        return quoted.append('"').toString();
    }

    private void skipSpace() {
        while (at < text.length() && " \t\n\r".indexOf(text.charAt(at)) >= 0) at++;
    }

    private boolean takes(String word) {
        boolean isThere = text.startsWith(word, at);
        if (isThere) at += word.length();
        return isThere;
    }

    private void need(String word) {
        if (!takes(word)) throw Failure.unreadable("JSON");
    }

    private Object value(int depth) {
        skipSpace();
        if (takes("{")) return object(depth + 1);
        if (takes("[")) return array(depth + 1);
        if (takes("\"")) return string();
        if (takes("true")) return true;
        if (takes("false")) return false;
        if (takes("null")) return null;
        Matcher number = NUMBER.matcher(text).region(at, text.length());
        if (!number.lookingAt()) throw Failure.unreadable("JSON");
        at = number.end();
        return Double.valueOf(number.group());
    }

    private Map<String, Object> object(int depth) {
        if (depth > DEPTH_LIMIT) throw Failure.unreadable("JSON");
        Map<String, Object> members = new LinkedHashMap<>();
        for (boolean isFirst = true; !closes("}", isFirst); isFirst = false) {
            skipSpace();
            need("\"");
            String name = string();
            skipSpace();
            need(":");
            members.put(name, value(depth));
        }
        return members;
    }

    private List<Object> array(int depth) {
        if (depth > DEPTH_LIMIT) throw Failure.unreadable("JSON");
        List<Object> values = new ArrayList<>();
        for (boolean isFirst = true; !closes("]", isFirst); isFirst = false) values.add(value(depth));
        return values;
    }

    private boolean closes(String bracket, boolean isFirst) {
        skipSpace();
        if (takes(bracket)) return true;
        if (!isFirst) need(",");
        return false;
    }

    private String string() {
        StringBuilder value = new StringBuilder();
        while (!takes("\"")) {
            if (at == text.length() || text.charAt(at) < 0x20) throw Failure.unreadable("JSON");
            char c = text.charAt(at++);
            value.append(c == '\\' ? escaped() : c);
        }
        for (int i = 0; i < value.length(); i++) { // a surrogate without its other half can't be written as UTF-8
            if (!Character.isSurrogate(value.charAt(i))) continue;
            if (Character.charCount(value.codePointAt(i)) == 2) i++;
            else value.setCharAt(i, '\ufffd');
        }
        return value.toString();
    }

    private char escaped() {
        if (at == text.length()) throw Failure.unreadable("JSON");
        char c = text.charAt(at++);
        int known = "\"\\/bfnrt".indexOf(c);
        if (known >= 0) return "\"\\/\b\f\n\r\t".charAt(known);
        if (c != 'u' || !text.substring(at, Math.min(at + 4, text.length())).matches("[0-9a-fA-F]{4}")) {
            throw Failure.unreadable("JSON");
        }
        at += 4;
        return (char) Integer.parseInt(text.substring(at - 4, at), 16);
    }
}
