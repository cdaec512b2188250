package pellucid;

import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/** Server-sent events from bytes that are cut anywhere (WHATWG rules); gives the data of each event, as bytes. */
final class SseParser {
    interface Reader {
        void take(byte[] data);
    }

    interface Stop {
        boolean isWanted();
    }

    private static final int EVENT_LIMIT = 1048576;
    private final Reader reader;
    private final ByteArrayOutputStream line = new ByteArrayOutputStream(), data = new ByteArrayOutputStream();
    private boolean skipsLf, hasBegun;

    SseParser(Reader reader) { this.reader = reader; }

    /** Read bytes up to the event at which {@code stop} is wanted. */
    void feed(byte[] bytes, Stop stop) {
        for (int at = 0; at < bytes.length && !stop.isWanted(); ) {
            if (skipsLf && bytes[at] == '\n') at++;
            if (skipsLf) {
                skipsLf = false;
                continue;
            }
            int end = at;
            while (end < bytes.length && bytes[end] != '\n' && bytes[end] != '\r') end++;
            append(line, bytes, at, end, EVENT_LIMIT + 6);
            if (end == bytes.length) return;
            skipsLf = bytes[end] == '\r';
            at = end + 1;
            endLine(line.toByteArray());
        }
    }

    private void endLine(byte[] whole) {
        line.reset();
        int from = !hasBegun && startsWith(whole, 0, "\u00ef\u00bb\u00bf") ? 3 : 0;
        hasBegun = true;
        if (whole.length == from) {
            byte[] event = data.toByteArray();
            data.reset();
            if (event.length > 0) reader.take(Arrays.copyOf(event, event.length - 1));
        } else if (startsWith(whole, from, "data") && (whole.length == from + 4 || whole[from + 4] == ':')) {
            int value = Math.min(whole.length, from + (startsWith(whole, from, "data: ") ? 6 : 5));
            append(data, whole, value, whole.length, EVENT_LIMIT);
            data.write('\n');
        }
    }

    private static boolean startsWith(byte[] bytes, int from, String start) {
        byte[] wanted = start.getBytes(StandardCharsets.ISO_8859_1);
        return bytes.length - from >= wanted.length
            && Arrays.equals(bytes, from, from + wanted.length, wanted, 0, wanted.length);
    }

    private static void append(ByteArrayOutputStream held, byte[] bytes, int from, int to, int limit) {
        if (held.size() + to - from > limit) throw Failure.unreadable("an event is longer than " + EVENT_LIMIT + " bytes");
        held.write(bytes, from, to - from);
    }
}
