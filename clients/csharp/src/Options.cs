using System;
using System.Collections;
using System.Collections.Generic;
using System.Globalization;
using System.Text.RegularExpressions;

namespace Pellucid
{
    /// <summary>The command line and the environment, checked.</summary>
    public sealed class Options
    {
        public const string Help = @"usage: pellucid-client PROGRAM [FLAGS]

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
";

        private const int MostRungs = 16, MostConcurrency = 256;
        private static readonly string[] ProgramNames = { "models", "chat", "chat-stream", "probe", "load" };

        private static readonly Dictionary<string, int[]> Ranges = new Dictionary<string, int[]>
        {
            { "--max-tokens", new[] { 1, 1000000 } },
            { "--requests", new[] { 1, 100000 } },
            { "--concurrency", new[] { 1, MostConcurrency } },
            { "--retries", new[] { 0, 10 } },
            { "--connect-timeout-ms", new[] { 1, 600000 } },
            { "--idle-timeout-ms", new[] { 1, 3600000 } },
        };

        private readonly Dictionary<string, string> _texts = new Dictionary<string, string>();

        private readonly Dictionary<string, int> _numbers = new Dictionary<string, int>
        {
            { "--max-tokens", 64 },
            { "--requests", 10 },
            { "--concurrency", 4 },
            { "--retries", 3 },
            { "--connect-timeout-ms", 5000 },
            { "--idle-timeout-ms", 60000 },
        };

        private Options(string program, IDictionary environment)
        {
            Program = program;
            Ladder = new List<int>();
            ApiKey = Named(environment, "PELLUCID_API_KEY", "");
            _texts["--url"] = Named(environment, "PELLUCID_URL", "http://127.0.0.1:8100");
            _texts["--dashboard"] = Named(environment, "PELLUCID_DASHBOARD", "http://127.0.0.1:3100");
            _texts["--model"] = Named(environment, "PELLUCID_MODEL", "");
            _texts["--prompt"] = "Name the three primary colors.";
            _texts["--trace-id"] = "";
        }

        public string Program { get; private set; }

        public string ApiKey { get; private set; }

        /// <summary>Empty unless it is wanted.</summary>
        public List<int> Ladder { get; private set; }

        public string Url { get { return _texts["--url"]; } }

        public string Dashboard { get { return _texts["--dashboard"]; } }

        public string Model { get { return _texts["--model"]; } }

        public string Prompt { get { return _texts["--prompt"]; } }

        public string TraceId { get { return _texts["--trace-id"]; } }

        public int MaxTokens { get { return _numbers["--max-tokens"]; } }

        public int Requests { get { return _numbers["--requests"]; } }

        public int Concurrency { get { return _numbers["--concurrency"]; } }

        public int Retries { get { return _numbers["--retries"]; } }

        public int ConnectTimeoutMs { get { return _numbers["--connect-timeout-ms"]; } }

        public int IdleTimeoutMs { get { return _numbers["--idle-timeout-ms"]; } }

        /// <summary>Null when help is wanted; a Failure on bad usage.</summary>
        public static Options Read(string[] arguments, IDictionary environment)
        {
            if (Array.IndexOf(arguments, "--help") >= 0) return null;
            string programs = "one of " + string.Join(", ", ProgramNames);
            if (arguments.Length == 0) throw new Failure(Failure.Usage, "no program given; " + programs);
            if (Array.IndexOf(ProgramNames, arguments[0]) < 0)
            {
                throw new Failure(Failure.Usage, "unknown program " + Failure.Clip(arguments[0]) + "; " + programs);
            }
            var options = new Options(arguments[0], environment);
            for (int at = 1; at < arguments.Length; at += 2)
            {
                options.ReadFlag(arguments[at], at + 1 < arguments.Length ? arguments[at + 1] : null);
            }
            if (options.TraceId != "" && !TraceContext.IsTraceId(options.TraceId))
            {
                throw Bad("--trace-id must be 32 lower-case hexadecimal digits, not all 0", options.TraceId);
            }
            options._texts["--url"] = CheckedUrl(options.Url);
            return options;
        }

        private void ReadFlag(string name, string value)
        {
            int[] range;
            bool isNumber = Ranges.TryGetValue(name, out range), isLadder = name == "--ladder";
            if (!isNumber && !isLadder && !_texts.ContainsKey(name))
            {
                throw new Failure(Failure.Usage, "unknown flag " + Failure.Clip(name));
            }
            if (value == null) throw new Failure(Failure.Usage, name + " needs a value");
            if (isLadder)
            {
                Ladder = Rungs(value);
            }
            else if (isNumber)
            {
                int number;
                if (!IsWhole(value, range[0], range[1], out number))
                {
                    throw Bad(name + " must be a whole number from " + range[0] + " to " + range[1], value);
                }
                _numbers[name] = number;
            }
            else
            {
                _texts[name] = value;
            }
        }

        private static List<int> Rungs(string value)
        {
            var rungs = new List<int>();
            foreach (string number in value.Split(','))
            {
                int rung, least = rungs.Count == 0 ? 1 : rungs[rungs.Count - 1] + 1;
                if (rungs.Count == MostRungs || !IsWhole(number, least, MostConcurrency, out rung))
                {
                    throw Bad("--ladder must be at most 16 rising whole numbers from 1 to 256 with commas between", value);
                }
                rungs.Add(rung);
            }
            return rungs;
        }

        private static bool IsWhole(string value, int low, int high, out int number)
        {
            number = Regex.IsMatch(value, "\\A[0-9]{1,9}\\z") ? int.Parse(value, CultureInfo.InvariantCulture) : -1;
            return number >= low && number <= high;
        }

        private static string CheckedUrl(string url)
        {
            string rest = Regex.Replace(Regex.Replace(url, "/\\z", ""), "/v1\\z", "");
            Match found = Regex.Match(rest, "\\Ahttp://(\\[[^\\]]+\\]|[^:\\[]+)(?::([0-9]{1,5}))?\\z");
            string host = found.Groups[1].Value;
            int port = found.Groups[2].Success ? int.Parse(found.Groups[2].Value, CultureInfo.InvariantCulture) : 80;
            string authority = "http://" + host + ":" + port;
            Uri uri;
            if (!found.Success || Regex.IsMatch(host, "[\\x00-\\x20\\x7f/?#@%\\\\]") || host.Length > 255 || port < 1
                || port > 65535 || !Uri.TryCreate(authority, UriKind.Absolute, out uri))
            {
                throw Bad("--url must be http://HOST[:PORT]", url);
            }
            return authority;
        }

        private static Failure Bad(string rule, string value)
        {
            return new Failure(Failure.Usage, rule + ", got " + Failure.Clip(value));
        }

        private static string Named(IDictionary environment, string name, string otherwise)
        {
            var value = environment[name] as string;
            return string.IsNullOrEmpty(value) ? otherwise : value;
        }
    }
}
