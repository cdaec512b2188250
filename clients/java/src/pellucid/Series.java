package pellucid;

import java.util.List;
import java.util.Locale;

/** Percentiles by nearest rank over single values, and only where there are enough. */
final class Series {
    static String line(String name, List<Double> values) {
        return name + " ms: n=" + values.size() + " p50=" + percentile(values, 50, 1) + " p90=" + percentile(values, 90, 10)
            + " p99=" + percentile(values, 99, 100) + " max=" + percentile(values, 100, 1) + "\n";
    }

    static String percentile(List<Double> values, int percent, int least) {
        if (values.size() < least) return "-";
        double[] sorted = values.stream().mapToDouble(Double::doubleValue).sorted().toArray();
        return String.format(Locale.ROOT, "%.3f", sorted[(sorted.length * percent + 99) / 100 - 1]);
    }
}
