using System.Collections.Generic;
using System.Globalization;

namespace Pellucid
{
    /// <summary>Percentiles by nearest rank over single values, and only where there are enough.</summary>
    public static class Series
    {
        public static string Line(string name, List<double> values)
        {
            return name + " ms: n=" + values.Count
                + " p50=" + Percentile(values, 50, 1) + " p90=" + Percentile(values, 90, 10)
                + " p99=" + Percentile(values, 99, 100) + " max=" + Percentile(values, 100, 1) + "\n";
        }

        /// <summary><c>-</c> when there are fewer than <paramref name="least"/> values.</summary>
        public static string Percentile(List<double> values, int percent, int least)
        {
            if (values.Count < least) return "-";
            var sorted = new List<double>(values);
            sorted.Sort();
            return Number(sorted[(sorted.Count * percent + 99) / 100 - 1], 3);
        }

        public static string Number(double value, int decimals)
        {
            return value.ToString("F" + decimals, CultureInfo.InvariantCulture);
        }
    }
}
