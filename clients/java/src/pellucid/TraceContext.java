package pellucid;

import java.security.SecureRandom;
import java.util.HexFormat;

/** W3C trace context: ids, and the header that carries them. */
final class TraceContext {
    private static final SecureRandom RANDOM = new SecureRandom();

    static boolean isTraceId(String text) {
        return text.matches("[0-9a-f]{32}") && !text.matches("0+");
    }

    static String newTraceId() { return randomHex(16); }

    static String newTraceparent(String traceId) { return "00-" + traceId + "-" + randomHex(8) + "-01"; }

    private static String randomHex(int numBytes) {
        byte[] bytes = new byte[numBytes];
        RANDOM.nextBytes(bytes);
        bytes[0] |= 1; // never all 0
        return HexFormat.of().formatHex(bytes);
    }
}
