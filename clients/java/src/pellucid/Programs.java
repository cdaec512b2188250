package pellucid;

import java.io.PrintStream;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;

/** The five programs. */
final class Programs {
    private final Options options;
    private final Client client;
    private final PrintStream out, err;
    private boolean hasText;

    Programs(Options options, Client client, PrintStream out, PrintStream err) {
        this.options = options;
        this.client = client;
        this.out = out;
        this.err = err;
    }

    int run() {
        try {
            return switch (options.program) {
                case "models" -> models();
                case "chat" -> chat();
                case "chat-stream" -> chatStream();
                case "probe" -> probe();
                default -> options.ladder.isEmpty() ? load() : ladder();
            };
        } catch (Failure failure) {
            if (hasText) out.print("\n");
            if (!failure.traceId.isEmpty() && !options.program.equals("models")) printTrace(failure.traceId);
            out.flush();
            throw failure;
        }
    }

    private int models() {
        for (String id : client.models()) out.print("model: " + id + "\n");
        return 0;
    }

    private int chat() {
        Answer answer = client.chat(options.prompt());
        out.print(answer.text + "\n");
        return printEnd(answer);
    }

    private int chatStream() {
        Answer answer = client.stream(options.prompt(), this::printText, false);
        out.print("\n");
        return printEnd(answer);
    }

    private void printText(String text) {
        hasText = true;
        out.print(text);
        out.flush();
    }

    private int printEnd(Answer answer) {
        hasText = false;
        out.print("finish: " + answer.finish + "\n");
        Usage usage = answer.usage;
        if (usage != null) {
            out.print("tokens: " + usage.prompt() + " prompt, " + usage.cached() + " cached, "
                + usage.completion() + " completion\n");
        }
        printTrace(answer.traceId);
        return 0;
    }

    private void printTrace(String traceId) {
        out.print("trace: " + traceId + " " + options.dashboard() + "/#trace=" + traceId + "\n");
    }

    private int probe() {
        Measurement measurement = new Measurement(err);
        for (int i = 0; i < options.requests(); i++) measurement.run(client, options.prompt(), false);
        out.print(measurement.counts() + Series.line("connect", List.of()) + measurement.times());
        return measurement.numFailed == 0 ? 0 : Failure.REFUSED;
    }

    private int load() {
        Measurement measurement = new Measurement(err);
        measurement.runMany(client, options.prompt(), options.requests(), options.concurrency());
        String speed = String.format(Locale.ROOT, "tokens/s: %.1f\n", measurement.tokensPerSecond());
        out.print("concurrency: " + options.concurrency() + "\n" + measurement.counts() + speed + measurement.times());
        return measurement.numFailed == 0 ? 0 : Failure.REFUSED;
    }

    /** What a batch gives: the same load at rising concurrencies, and the first that has nine tenths of the best. */
    private int ladder() {
        String row = "%11s %7s %7s %11s %8s %12s %12s\n";
        out.printf(row, "concurrency", "ok", "failed", "tokens/s", "speedup", "ttft p50 ms", "itl p50 ms");
        out.flush();
        new Measurement(new PrintStream(PrintStream.nullOutputStream())).run(client, options.prompt(), true);
        List<Double> speeds = new ArrayList<>();
        int numFailed = 0;
        for (int rung : options.ladder) {
            Measurement measurement = new Measurement(err);
            measurement.runMany(client, options.prompt(), options.requests(), rung);
            double speed = measurement.tokensPerSecond();
            speeds.add(speed);
            numFailed += measurement.numFailed;
            String speedup = speeds.get(0) > 0 ? String.format(Locale.ROOT, "%.2f", speed / speeds.get(0)) : "-";
            String tokens = String.format(Locale.ROOT, "%.1f", speed);
            out.printf(row, rung, measurement.numOk, measurement.numFailed, tokens, speedup,
                Series.percentile(measurement.ttft, 50, 1), Series.percentile(measurement.itl, 50, 1));
            out.flush();
        }
        double best = speeds.stream().mapToDouble(Double::doubleValue).max().orElse(0);
        int knee = 0;
        while (best > 0 && speeds.get(knee) < 0.9 * best) knee++;
        out.print("knee: " + (best > 0 ? options.ladder.get(knee) : "-") + "\n");
        return numFailed == 0 ? 0 : Failure.REFUSED;
    }
}
