package pellucid;

import java.net.URI;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The command line and the environment, checked. */
final class Options {
    static final List<String> PROGRAMS = List.of("models", "chat", "chat-stream", "probe", "load");
    static final String HELP = """
        usage: pellucid-client PROGRAM [FLAGS]

        programs: models, chat, chat-stream, probe, load

          --url URL                  http://HOST[:PORT] of the server
          --dashboard URL            for the link to the trace
          --model NAME               the server's default when absent
          --prompt TEXT              what to ask
          --max-tokens N             of each answer
          --requests N               of probe and load
          --concurrency N            workers of load
          --ladder N,N,...           load at each of these concurrencies
          --retries N                after 429 and 503
          --connect-timeout-ms N     for each address
          --idle-timeout-ms N        since the last byte
          --trace-id HEX             32 digits, instead of a random one

        environment: PELLUCID_URL, PELLUCID_DASHBOARD, PELLUCID_MODEL, PELLUCID_API_KEY
        """;
    private static final Pattern URL = Pattern.compile("http://(\\[[^\\]]+\\]|[^:\\[]+)(?::([0-9]{1,5}))?");
    private static final Pattern BAD_HOST = Pattern.compile("[\\x00-\\x20\\x7f/?#@%\\\\]");

    private record Range(int low, int high) {}

    private static final Map<String, Range> NUMBERS = Map.of(
        "--max-tokens", new Range(1, 1000000),
        "--requests", new Range(1, 100000),
        "--concurrency", new Range(1, 256),
        "--retries", new Range(0, 10),
        "--connect-timeout-ms", new Range(1, 600000),
        "--idle-timeout-ms", new Range(1, 3600000));

    final String program;
    private final Map<String, String> texts = new HashMap<>();
    private final Map<String, Integer> numbers = new HashMap<>(Map.of(
        "--max-tokens", 64, "--requests", 10, "--concurrency", 4, "--retries", 3,
        "--connect-timeout-ms", 5000, "--idle-timeout-ms", 60000));
    final String apiKey;
    List<Integer> ladder = List.of();

    private Options(String program, Map<String, String> environment) {
        this.program = program;
        apiKey = environment.getOrDefault("PELLUCID_API_KEY", "");
        texts.put("--url", named(environment, "PELLUCID_URL", "http://127.0.0.1:8100"));
        texts.put("--dashboard", named(environment, "PELLUCID_DASHBOARD", "http://127.0.0.1:3100"));
        texts.put("--model", named(environment, "PELLUCID_MODEL", ""));
        texts.put("--prompt", "Name the three primary colors.");
        texts.put("--trace-id", "");
    }

    /** Return null when help is wanted. */
    static Options read(String[] arguments, Map<String, String> environment) {
        if (Arrays.asList(arguments).contains("--help")) return null;
        String programs = "one of " + String.join(", ", PROGRAMS);
        if (arguments.length == 0) throw new Failure(Failure.USAGE, "no program given; " + programs);
        if (!PROGRAMS.contains(arguments[0])) {
            throw new Failure(Failure.USAGE, "unknown program " + Failure.clip(arguments[0]) + "; " + programs);
        }
        Options options = new Options(arguments[0], environment);
        for (int at = 1; at < arguments.length; at += 2) {
            options.readFlag(arguments[at], at + 1 < arguments.length ? arguments[at + 1] : null);
        }
        if (!options.traceId().isEmpty() && !TraceContext.isTraceId(options.traceId())) {
            throw bad("--trace-id must be 32 lower-case hexadecimal digits, not all 0", options.traceId());
        }
        options.texts.put("--url", checkedUrl(options.url()));
        return options;
    }

    private void readFlag(String name, String value) {
        Range range = NUMBERS.get(name);
        boolean isLadder = name.equals("--ladder");
        if (range == null && !isLadder && !texts.containsKey(name)) {
            throw new Failure(Failure.USAGE, "unknown flag " + Failure.clip(name));
        }
        if (value == null) throw new Failure(Failure.USAGE, name + " needs a value");
        if (isLadder) {
            ladder = rungs(value);
        } else if (range == null) {
            texts.put(name, value);
        } else {
            numbers.put(name, whole(value, range));
            if (numbers.get(name) < 0) {
                throw bad(name + " must be a whole number from " + range.low + " to " + range.high, value);
            }
        }
    }

    private static List<Integer> rungs(String value) {
        List<Integer> rungs = new ArrayList<>();
        for (String number : value.split(",", -1)) {
            int rung = whole(number, new Range(rungs.isEmpty() ? 1 : rungs.get(rungs.size() - 1) + 1, 256));
            if (rung < 0 || rungs.size() == 16) {
                throw bad("--ladder must be at most 16 rising whole numbers from 1 to 256 with commas between", value);
            }
            rungs.add(rung);
        }
        return rungs;
    }

    /** Return -1 for what is no number of the range. */
    private static int whole(String value, Range range) {
        int number = value.matches("[0-9]{1,9}") ? Integer.parseInt(value) : -1;
        return number >= range.low && number <= range.high ? number : -1;
    }

    private static String checkedUrl(String url) {
        Matcher found = URL.matcher(url.replaceFirst("/$", "").replaceFirst("/v1$", ""));
        boolean isUrl = found.matches() && found.group(1).length() <= 255 && !BAD_HOST.matcher(found.group(1)).find();
        int port = !isUrl || found.group(2) == null ? 80 : Integer.parseInt(found.group(2));
        String checked = isUrl ? "http://" + found.group(1) + ":" + port : "";
        // java.net.http reaches no host that java.net.URI doesn't take for one, such as a_b
        if (!isUrl || port < 1 || port > 65535 || !isUri(checked)) throw bad("--url must be http://HOST[:PORT]", url);
        return checked;
    }

    private static boolean isUri(String url) {
        try { return URI.create(url).getHost() != null; } catch (IllegalArgumentException notOne) { return false; }
    }

    private static Failure bad(String rule, String value) {
        return new Failure(Failure.USAGE, rule + ", got " + Failure.clip(value));
    }

    private static String named(Map<String, String> environment, String name, String otherwise) {
        String value = environment.getOrDefault(name, "");
        return value.isEmpty() ? otherwise : value;
    }

    String url() { return texts.get("--url"); }
    String dashboard() { return texts.get("--dashboard"); }
    String model() { return texts.get("--model"); }
    String prompt() { return texts.get("--prompt"); }
    String traceId() { return texts.get("--trace-id"); }
    int maxTokens() { return numbers.get("--max-tokens"); }
    int requests() { return numbers.get("--requests"); }
    int concurrency() { return numbers.get("--concurrency"); }
    int retries() { return numbers.get("--retries"); }
    int connectTimeoutMs() { return numbers.get("--connect-timeout-ms"); }
    int idleTimeoutMs() { return numbers.get("--idle-timeout-ms"); }
}
