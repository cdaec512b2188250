package pellucid;

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ThreadLocalRandom;
import java.util.function.Consumer;

/** What the programs ask of the server; one object serves many threads. */
final class Client {
    private static final int LONGEST_WAIT_S = 30, BODY_LIMIT = 16 << 20;
    private final Options options;
    private final Transport transport;
    private final PrintStream err;

    private interface Reading {
        Answer of(Transport.Response response);
    }

    Client(Options options, Transport transport, PrintStream err) {
        this.options = options;
        this.transport = transport;
        this.err = err;
    }

    /** The names that the server answers to. */
    List<String> models() {
        List<String> ids = new ArrayList<>();
        call("/v1/models", "", false, false, response -> {
            Object data = Json.member(parsed(readBody(response)), "data");
            if (!(data instanceof List<?> entries)) throw Failure.unreadable("JSON");
            for (Object entry : entries) if (Json.member(entry, "id") instanceof String id) ids.add(id);
            return new Answer(text -> {});
        });
        return ids;
    }

    /** One answer, whole. */
    Answer chat(String prompt) {
        return call("/v1/chat/completions", chatBody(prompt, ""), false, false, response -> {
            Answer answer = new Answer(text -> {});
            answer.takeWhole(parsed(readBody(response)));
            return answer;
        });
    }

    /** One answer as it is made: {@code onText} gets each piece. Kept connections are read to the end of the response. */
    Answer stream(String prompt, Consumer<String> onText, boolean keepsConnection) {
        String body = chatBody(prompt, ",\"stream\":true,\"stream_options\":{\"include_usage\":true}");
        return call("/v1/chat/completions", body, true, keepsConnection,
            response -> readStream(response, new Answer(onText), keepsConnection));
    }

    private String chatBody(String prompt, String extra) {
        String model = options.model().isEmpty() ? "" : "\"model\":" + Json.quote(options.model()) + ",";
        return "{" + model + "\"messages\":[{\"role\":\"user\",\"content\":" + Json.quote(prompt)
            + "}],\"temperature\":0,\"max_tokens\":" + options.maxTokens() + extra + "}";
    }

    private Answer call(String path, String body, boolean isStream, boolean keepsConnection, Reading reading) {
        String sentId = options.traceId().isEmpty() ? TraceContext.newTraceId() : options.traceId();
        for (int triesLeft = options.retries(); ; triesLeft--) {
            double startedMs = System.nanoTime() / 1e6;
            String traceId = sentId;
            int wait;
            String traceparent = TraceContext.newTraceparent(sentId);
            var request = new Transport.Request(path, body, isStream, keepsConnection, traceparent);
            try (Transport.Response response = transport.open(request)) {
                String named = response.header("x-trace-id");
                traceId = TraceContext.isTraceId(named) ? named : sentId;
                wait = secondsToWait(response);
                if (triesLeft == 0 || wait < 0) {
                    if (response.status() != 200) throw refusal(response);
                    Answer answer = reading.of(response);
                    answer.traceId = traceId;
                    answer.startedMs = startedMs;
                    return answer;
                }
                readBody(response);
                err.print("retry: the server answered " + response.status() + ", waiting " + wait + " s\n");
                err.flush();
            } catch (Failure failure) {
                if (failure.exitCode != Failure.NO_CONNECTION) failure.traceId = traceId;
                throw failure;
            }
            stayAway(wait);
        }
    }

    private static Answer readStream(Transport.Response response, Answer answer, boolean keepsConnection) {
        if (!response.header("content-type").matches("(?is)text/event-stream(?:$|[; ].*)")) {
            throw Failure.unreadable("not an event stream");
        }
        SseParser events = new SseParser(answer::take);
        try {
            for (byte[] piece; (keepsConnection || !answer.isDone) && (piece = response.next()) != null; ) {
                if (!answer.isDone) events.feed(piece, () -> answer.isDone);
            }
        } catch (Failure failure) {
            if (!answer.isDone) throw failure;
        }
        answer.end();
        return answer;
    }

    private static byte[] readBody(Transport.Response response) {
        ByteArrayOutputStream body = new ByteArrayOutputStream();
        for (byte[] piece; (piece = response.next()) != null; body.writeBytes(piece)) {
            if (body.size() + piece.length > BODY_LIMIT) throw Failure.unreadable("HTTP");
        }
        return body.toByteArray();
    }

    private static Object parsed(byte[] body) {
        try { return Json.parse(body); } catch (Failure failure) {
            throw Failure.unreadable("JSON");
        }
    }

    private static Failure refusal(Transport.Response response) {
        byte[] body = readBody(response);
        String message = null;
        try {
            message = Answer.errorMessage(Json.parse(body));
        } catch (Failure notJson) {
            // a proxy's page: the status says it all
        }
        String status = "the server answered " + response.status();
        return new Failure(Failure.REFUSED, message == null ? status : status + ": " + message);
    }

    /** Seconds that the server wants us to stay away; -1 when the call isn't to be tried again. */
    private static int secondsToWait(Transport.Response response) {
        if (response.status() != 429 && response.status() != 503) return -1;
        String named = response.header("retry-after");
        long seconds = named.matches("[0-9]{1,18}") && Long.parseLong(named) < 1000000 ? Long.parseLong(named) : 1;
        return seconds <= LONGEST_WAIT_S ? (int) seconds : -1;
    }

    private static void stayAway(int seconds) {
        try {
            Thread.sleep((long) (seconds * 1000 * (1 + ThreadLocalRandom.current().nextDouble() / 10)));
        } catch (InterruptedException interrupted) {
            throw new IllegalStateException(interrupted);
        }
    }
}
