using System.Collections.Generic;
using System.Globalization;
using System.Text;
using System.Text.RegularExpressions;

namespace Pellucid
{
    /// <summary>
    /// JSON as Dictionary, List, string, double, bool and null: System.Text.Json isn't there under Mono.
    /// </summary>
    public sealed class Json
    {
        private const int DepthLimit = 100;
        private static readonly UTF8Encoding Utf8 = new UTF8Encoding(false, true);
        private static readonly Regex Number = new Regex("\\G-?(?:0|[1-9][0-9]*)(?:\\.[0-9]+)?(?:[eE][+-]?[0-9]+)?");
        private readonly string _text;
        private int _at;

        private Json(string text)
        {
            _text = text;
        }

        /// <summary>Parse UTF-8 bytes; a Failure when they are not UTF-8, not JSON, or nested too deep.</summary>
        public static object Parse(byte[] bytes)
        {
            string text;
            try
            {
                text = Utf8.GetString(bytes);
            }
            catch (DecoderFallbackException)
            {
                throw Failure.Unreadable("UTF-8");
            }
            var json = new Json(text);
            object value = json.Value(0);
            json.SkipSpace();
            if (json._at < text.Length) throw NotJson();
            return value;
        }

        /// <summary>A member of what may be an object; null when there is none.</summary>
        public static object Member(object value, string name)
        {
            object member = null;
            (value as Dictionary<string, object>)?.TryGetValue(name, out member);
            return member;
        }

        public static string Quote(string text)
        {
            var quoted = new StringBuilder("\"");
            foreach (char c in text)
            {
                int known = "\"\\\b\f\n\r\t".IndexOf(c);
                if (known >= 0) quoted.Append('\\').Append("\"\\bfnrt"[known]);
                else if (c < 0x20) quoted.Append("\\u").Append(((int)c).ToString("x4"));
                else quoted.Append(c);
            }
            return quoted.Append('"').ToString();
        }

        private static Failure NotJson()
        {
            return Failure.Unreadable("JSON");
        }

        private void SkipSpace()
        {
            while (_at < _text.Length && " \t\n\r".IndexOf(_text[_at]) >= 0) _at++;
        }

        private bool Takes(string word)
        {
            if (string.CompareOrdinal(_text, _at, word, 0, word.Length) != 0) return false;
            _at += word.Length;
            return true;
        }

        private void Need(string word)
        {
            if (!Takes(word)) throw NotJson();
        }

        private object Value(int depth)
        {
            SkipSpace();
            if (Takes("{")) return Object(depth + 1);
            if (Takes("[")) return Array(depth + 1);
            if (Takes("\"")) return String();
            if (Takes("true")) return true;
            if (Takes("false")) return false;
            if (Takes("null")) return null;
            Match number = Number.Match(_text, _at);
            if (!number.Success) throw NotJson();
            _at += number.Length;
            // Mono refuses what overflows, .NET makes infinity of it
            double value;
            bool fits = double.TryParse(number.Value, NumberStyles.Float, CultureInfo.InvariantCulture, out value);
            return fits ? value : double.PositiveInfinity;
        }

        private Dictionary<string, object> Object(int depth)
        {
            if (depth > DepthLimit) throw NotJson();
            var members = new Dictionary<string, object>();
            for (bool isFirst = true; !Closes("}", isFirst); isFirst = false)
            {
                SkipSpace();
                Need("\"");
                string name = String();
                SkipSpace();
                Need(":");
                members[name] = Value(depth);
            }
            return members;
        }

        private List<object> Array(int depth)
        {
            if (depth > DepthLimit) throw NotJson();
            var values = new List<object>();
            for (bool isFirst = true; !Closes("]", isFirst); isFirst = false) values.Add(Value(depth));
            return values;
        }

        private bool Closes(string bracket, bool isFirst)
        {
            SkipSpace();
            if (Takes(bracket)) return true;
            if (!isFirst) Need(",");
            return false;
        }

        private string String()
        {
            var value = new StringBuilder();
            while (!Takes("\""))
            {
                if (_at == _text.Length || _text[_at] < 0x20) throw NotJson();
                char c = _text[_at++];
                value.Append(c == '\\' ? Escaped() : c);
            }
            for (int i = 0; i < value.Length; i++) // a surrogate without its other half can't be written as UTF-8
            {
                if (!char.IsSurrogate(value[i])) continue;
                if (i + 1 < value.Length && char.IsSurrogatePair(value[i], value[i + 1])) i++;
                else value[i] = '\ufffd';
            }
            return value.ToString();
        }

        private char Escaped()
        {
            if (_at == _text.Length) throw NotJson();
            char c = _text[_at++];
            int known = "\"\\/bfnrt".IndexOf(c);
            if (known >= 0) return "\"\\/\b\f\n\r\t"[known];
            if (c != 'u' || _at + 4 > _text.Length) throw NotJson();
            int code;
            string digits = _text.Substring(_at, 4);
            bool isHex = int.TryParse(digits, NumberStyles.AllowHexSpecifier, CultureInfo.InvariantCulture, out code);
            if (!isHex) throw NotJson();
            _at += 4;
            return (char)code;
        }
    }
}
