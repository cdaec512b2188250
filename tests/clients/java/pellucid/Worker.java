package pellucid;

import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * The client in one process for many tests; tests/clients/worker.py says what it is asked and answers.
 */
public final class Worker {
    private record Result(int code, String out, String err) {}

    private interface Run {
        int run(PrintStream out, PrintStream err);
    }

    public static void main(String[] arguments) throws IOException {
        BufferedReader asked = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line; (line = asked.readLine()) != null; ) {
            String[] words = line.split(" ");
            Result result = switch (words[0]) {
                case "run" -> run(words);
                case "once" -> once(recordingOf(words));
                case "cut" -> cutEverywhere(recordingOf(words));
                default -> loseEverywhere(recordingOf(words));
            };
            System.out.println(result.code + " " + coded(result.out) + " " + coded(result.err));
        }
        System.exit(0);
    }

    /** {@code run .ARGUMENT ... = .NAME .VALUE ...} */
    private static Result run(String[] words) {
        int end = Arrays.asList(words).indexOf("=");
        String[] arguments = Arrays.stream(words, 1, end).map(Worker::text).toArray(String[]::new);
        Map<String, String> environment = new HashMap<>();
        for (int i = end + 1; i < words.length; i += 2) environment.put(text(words[i]), text(words[i + 1]));
        return captured((out, err) -> Main.run(arguments, environment, out, err));
    }

    private static Result once(RecordedTransport.Recording recording) {
        return chatStream(recording, List.of(recording.body()));
    }

    private static Result cutEverywhere(RecordedTransport.Recording recording) {
        byte[] body = recording.body();
        Result whole = chatStream(recording, List.of(body));
        List<byte[]> single = new ArrayList<>();
        for (int i = 0; i < body.length; i++) single.add(Arrays.copyOfRange(body, i, i + 1));
        if (!chatStream(recording, single).equals(whole)) return new Result(-1, "byte by byte", "");
        for (int cut = 1; cut < body.length; cut++) {
            List<byte[]> two = List.of(Arrays.copyOf(body, cut), Arrays.copyOfRange(body, cut, body.length));
            Result seen = chatStream(recording, two);
            if (!seen.equals(whole)) return new Result(-1, "cut after " + cut + ": " + seen, "");
        }
        return whole;
    }

    /** The exit code after each number of bytes, where it changes. */
    private static Result loseEverywhere(RecordedTransport.Recording recording) {
        StringBuilder changes = new StringBuilder();
        int last = -1;
        for (int kept = 0; kept <= recording.body().length; kept++) {
            int code = chatStream(recording, List.of(Arrays.copyOf(recording.body(), kept))).code;
            if (code != last) changes.append(kept).append(' ').append(code).append('\n');
            last = code;
        }
        return new Result(0, changes.toString(), "");
    }

    private static Result chatStream(RecordedTransport.Recording recording, List<byte[]> pieces) {
        String[] arguments = {"chat-stream", "--trace-id", "0123456789abcdef0123456789abcdef"};
        return captured((out, err) -> {
            Options options = Options.read(arguments, Map.of());
            try {
                return new Programs(options, new Client(options, new RecordedTransport(recording, pieces), err), out, err).run();
            } catch (Failure failure) {
                err.print("error: " + failure.getMessage() + "\n");
                return failure.exitCode;
            }
        });
    }

    /** {@code once|cut|lose STATUS .HEADERS .BODY whole|lost}, headers a line each. */
    private static RecordedTransport.Recording recordingOf(String[] words) {
        Map<String, String> headers = new HashMap<>();
        for (String line : text(words[2]).split("\n")) {
            headers.put(line.substring(0, line.indexOf(':')), line.substring(line.indexOf(':') + 1));
        }
        byte[] body = Base64.getDecoder().decode(words[3].substring(1));
        return new RecordedTransport.Recording(Integer.parseInt(words[1]), headers, body, words[4].equals("whole"));
    }

    private static Result captured(Run run) {
        ByteArrayOutputStream out = new ByteArrayOutputStream(), err = new ByteArrayOutputStream();
        PrintStream toOut = new PrintStream(out, false, StandardCharsets.UTF_8);
        PrintStream toErr = new PrintStream(err, false, StandardCharsets.UTF_8);
        int code = run.run(toOut, toErr);
        toOut.flush();
        toErr.flush();
        return new Result(code, out.toString(StandardCharsets.UTF_8), err.toString(StandardCharsets.UTF_8));
    }

    private static String text(String word) {
        return new String(Base64.getDecoder().decode(word.substring(1)), StandardCharsets.UTF_8);
    }

    private static String coded(String text) {
        return "." + Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8));
    }
}
