using System.Diagnostics;

namespace Pellucid
{
    /// <summary>Milliseconds of a clock that never goes back.</summary>
    public static class Clock
    {
        public static double NowMs
        {
            get { return Stopwatch.GetTimestamp() * 1e3 / Stopwatch.Frequency; }
        }
    }
}
