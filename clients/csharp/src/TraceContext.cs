using System;
using System.Security.Cryptography;
using System.Text.RegularExpressions;

namespace Pellucid
{
    /// <summary>W3C trace context: ids, and the header that carries them.</summary>
    public static class TraceContext
    {
        private static readonly RandomNumberGenerator Random = RandomNumberGenerator.Create();

        public static bool IsTraceId(string text)
        {
            return Regex.IsMatch(text, "\\A[0-9a-f]{32}\\z") && !Regex.IsMatch(text, "\\A0+\\z");
        }

        public static string NewTraceId()
        {
            return RandomHex(16);
        }

        public static string NewTraceparent(string traceId)
        {
            return "00-" + traceId + "-" + RandomHex(8) + "-01";
        }

        private static string RandomHex(int numBytes)
        {
            var bytes = new byte[numBytes];
            lock (Random) Random.GetBytes(bytes);
            bytes[0] |= 1; // never all 0
            return BitConverter.ToString(bytes).Replace("-", "").ToLowerInvariant();
        }
    }
}
