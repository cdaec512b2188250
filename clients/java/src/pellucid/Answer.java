package pellucid;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;

/** What the events of one chat stream, or one body, add up to. */
final class Answer {
    private static final byte[] DONE = "[DONE]".getBytes(StandardCharsets.UTF_8);
    private final Consumer<String> onText;
    boolean isDone;
    String text = "", finish = "", traceId = "";
    Usage usage;
    /** When the request began, each event with text came, and the one with the finish reason. */
    double startedMs, finishedMs;
    final List<Double> textTimesMs = new ArrayList<>();

    Answer(Consumer<String> onText) { this.onText = onText; }

    /** Take the data of one event. */
    void take(byte[] data) {
        if (Arrays.equals(data, DONE)) {
            isDone = true;
            return;
        }
        if (!(Json.parse(data) instanceof Map<?, ?> chunk)) throw Failure.unreadable("JSON");
        if (chunk.get("error") != null) {
            String message = errorMessage(chunk);
            throw new Failure(Failure.REFUSED, "the server failed: " + (message == null ? "unknown error" : message));
        }
        if (chunk.get("choices") instanceof List<?> choices) choices.forEach(this::takeChoice);
        Usage named = Usage.of(chunk);
        if (named != null) usage = named;
    }

    private void takeChoice(Object choice) {
        boolean isFirst = choice instanceof Map<?, ?> members
            && (!members.containsKey("index") || members.get("index") instanceof Double index && index == 0);
        if (!isFirst) return;
        if (Json.member(Json.member(choice, "delta"), "content") instanceof String piece && !piece.isEmpty()) {
            textTimesMs.add(System.nanoTime() / 1e6);
            onText.accept(piece);
        }
        if (Json.member(choice, "finish_reason") instanceof String reason && !reason.isEmpty()) {
            takeFinish(reason);
            finishedMs = System.nanoTime() / 1e6;
        }
    }

    /** Take the body of an answer that is no stream. */
    void takeWhole(Object body) {
        boolean hasChoice = Json.member(body, "choices") instanceof List<?> list && !list.isEmpty();
        Object choice = hasChoice ? ((List<?>) Json.member(body, "choices")).get(0) : null;
        if (!(Json.member(Json.member(choice, "message"), "content") instanceof String content)
            || !(Json.member(choice, "finish_reason") instanceof String reason)) {
            throw Failure.unreadable("JSON");
        }
        text = content;
        takeFinish(reason);
        usage = Usage.of(body);
    }

    private void takeFinish(String reason) {
        finish = Failure.clip(Failure.withoutControls(reason), 63);
    }

    /** The stream is over. */
    void end() {
        if (!isDone) throw new Failure(Failure.BROKEN, "the stream ended before [DONE]");
        if (finish.isEmpty()) throw new Failure(Failure.BROKEN, "the stream ended without a finish reason");
    }

    /** {@code error.message} of a body, cut; null when it has none. */
    static String errorMessage(Object body) {
        Object message = Json.member(Json.member(body, "error"), "message");
        return message instanceof String text ? Failure.clip(text) : null;
    }
}
