using System;
using System.Text;
using System.Text.RegularExpressions;

namespace Pellucid
{
    /// <summary>What went wrong, in the words and with the exit codes of CONTRACT.md.</summary>
    public sealed class Failure : Exception
    {
        public const int Refused = 1, Usage = 2, NoConnection = 3, Broken = 4, Silent = 5;
        private const int MessageBytes = 800;

        public Failure(int exitCode, string message) : base(WithoutControls(message))
        {
            ExitCode = exitCode;
            TraceId = "";
        }

        public int ExitCode { get; private set; }

        /// <summary>The trace to look at; "" without a connection.</summary>
        public string TraceId { get; set; }

        public static Failure Unreadable(string what)
        {
            return new Failure(Broken, "the answer can't be read: " + what);
        }

        /// <summary>Control characters become spaces.</summary>
        public static string WithoutControls(string text)
        {
            return Regex.Replace(text, "[\\x00-\\x1f\\x7f]", " ");
        }

        /// <summary>Cut a text to <paramref name="limit"/> bytes of UTF-8 without breaking a character.</summary>
        public static string Clip(string text, int limit = MessageBytes)
        {
            byte[] bytes = Encoding.UTF8.GetBytes(text);
            if (bytes.Length <= limit) return text;
            int end = limit;
            while (end > 0 && (bytes[end] & 0xc0) == 0x80) end--;
            return Encoding.UTF8.GetString(bytes, 0, end);
        }
    }
}
