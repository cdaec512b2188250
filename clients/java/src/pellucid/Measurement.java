package pellucid;

import java.io.PrintStream;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/** What many streams add up to. A failed stream is counted as one and goes into nothing else. */
final class Measurement {
    private final PrintStream err;
    private double seconds;
    int numOk, numFailed;
    long numTokens;
    final List<Double> ttft = new ArrayList<>(), itl = new ArrayList<>(), total = new ArrayList<>();

    Measurement(PrintStream err) { this.err = err; }

    void run(Client client, String prompt, boolean keepsConnection) {
        try {
            count(client.stream(prompt, text -> {}, keepsConnection));
        } catch (Failure failure) {
            countFailure(failure);
        }
    }

    void runMany(Client client, String prompt, int numRequests, int concurrency) {
        long started = System.nanoTime();
        ExecutorService workers = Executors.newFixedThreadPool(concurrency);
        try {
            List<Future<?>> runs = new ArrayList<>();
            for (int i = 0; i < numRequests; i++) runs.add(workers.submit(() -> run(client, prompt, true)));
            for (Future<?> run : runs) run.get();
        } catch (InterruptedException | ExecutionException broken) {
            throw new IllegalStateException(broken);
        } finally {
            workers.shutdownNow();
        }
        seconds = (System.nanoTime() - started) / 1e9;
    }

    private synchronized void count(Answer answer) {
        numOk++;
        numTokens += answer.usage == null ? 0 : answer.usage.completion();
        List<Double> times = answer.textTimesMs;
        if (!times.isEmpty()) ttft.add(times.get(0) - answer.startedMs);
        for (int i = 1; i < times.size(); i++) itl.add(times.get(i) - times.get(i - 1));
        total.add(answer.finishedMs - answer.startedMs);
    }

    private synchronized void countFailure(Failure failure) {
        numFailed++;
        err.print("error: " + failure.getMessage() + "\n");
        err.flush();
    }

    double tokensPerSecond() { return numTokens / seconds; }

    String counts() { return "requests: " + numOk + " ok, " + numFailed + " failed\ntokens: " + numTokens + "\n"; }

    String times() { return Series.line("ttft", ttft) + Series.line("itl", itl) + Series.line("total", total); }
}
