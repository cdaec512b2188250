using System;
using System.IO;

namespace Pellucid
{
    /// <summary>
    /// Server-sent events from bytes that are cut anywhere (WHATWG rules); gives the data of each event, as bytes.
    /// </summary>
    public sealed class SseParser
    {
        private const int EventLimit = 1048576;
        private readonly Action<byte[]> _onEvent;
        private readonly MemoryStream _line = new MemoryStream(), _data = new MemoryStream();
        private bool _skipsLf, _hasBegun;

        public SseParser(Action<byte[]> onEvent)
        {
            _onEvent = onEvent;
        }

        /// <summary>Read bytes up to the event after which <paramref name="isOver"/>.</summary>
        public void Feed(byte[] bytes, Func<bool> isOver)
        {
            for (int at = 0; at < bytes.Length && !isOver();)
            {
                if (_skipsLf)
                {
                    _skipsLf = false;
                    if (bytes[at] == '\n') at++;
                    continue;
                }
                int end = at;
                while (end < bytes.Length && bytes[end] != '\n' && bytes[end] != '\r') end++;
                Append(_line, bytes, at, end, EventLimit + 6);
                if (end == bytes.Length) return;
                _skipsLf = bytes[end] == '\r';
                at = end + 1;
                EndLine(Taken(_line));
            }
        }

        private void EndLine(byte[] line)
        {
            int from = !_hasBegun && StartsWith(line, 0, "\u00ef\u00bb\u00bf") ? 3 : 0;
            _hasBegun = true;
            if (line.Length == from)
            {
                byte[] data = Taken(_data);
                if (data.Length == 0) return;
                System.Array.Resize(ref data, data.Length - 1);
                _onEvent(data);
            }
            else if (StartsWith(line, from, "data") && (line.Length == from + 4 || line[from + 4] == ':'))
            {
                int value = Math.Min(line.Length, from + (StartsWith(line, from, "data: ") ? 6 : 5));
                Append(_data, line, value, line.Length, EventLimit);
                _data.WriteByte((byte)'\n');
            }
        }

        private static byte[] Taken(MemoryStream held)
        {
            byte[] bytes = held.ToArray();
            held.SetLength(0);
            return bytes;
        }

        private static bool StartsWith(byte[] bytes, int from, string start)
        {
            if (bytes.Length - from < start.Length) return false;
            for (int i = 0; i < start.Length; i++)
            {
                if (bytes[from + i] != start[i]) return false;
            }
            return true;
        }

        private static void Append(MemoryStream held, byte[] bytes, int from, int to, int limit)
        {
            if (held.Length + to - from > limit)
            {
                throw Failure.Unreadable("an event is longer than " + EventLimit + " bytes");
            }
            held.Write(bytes, from, to - from);
        }
    }
}
