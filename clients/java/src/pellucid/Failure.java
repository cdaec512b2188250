package pellucid;

import java.nio.charset.StandardCharsets;

/** What went wrong, in the words and with the exit codes of CONTRACT.md. */
final class Failure extends RuntimeException {
    static final int REFUSED = 1, USAGE = 2, NO_CONNECTION = 3, BROKEN = 4, SILENT = 5;
    private static final long serialVersionUID = 1;
    private static final int MESSAGE_BYTES = 800;

    final int exitCode;
    /** The trace to look at; "" without a connection. */
    String traceId = "";

    /** Control characters in the message become spaces. */
    Failure(int exitCode, String message) {
        super(withoutControls(message));
        this.exitCode = exitCode;
    }

    static Failure unreadable(String what) {
        return new Failure(BROKEN, "the answer can't be read: " + what);
    }

    static String withoutControls(String text) {
        return text.replaceAll("[\\x00-\\x1f\\x7f]", " ");
    }

    static String clip(String text) {
        return clip(text, MESSAGE_BYTES);
    }

    /** Cut a text to {@code limit} bytes of UTF-8 without breaking a character. */
    static String clip(String text, int limit) {
        byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
        if (bytes.length <= limit) return text;
        int end = limit;
        while (end > 0 && (bytes[end] & 0xc0) == 0x80) end--;
        return new String(bytes, 0, end, StandardCharsets.UTF_8);
    }
}
