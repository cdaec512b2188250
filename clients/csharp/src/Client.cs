using System;
using System.Collections.Generic;
using System.IO;
using System.Text.RegularExpressions;
using System.Threading;
using System.Threading.Tasks;

namespace Pellucid
{
    /// <summary>What the programs ask of the server. One object serves any number of calls at once.</summary>
    public sealed class Client
    {
        private const int LongestWaitS = 30, BodyLimit = 16 << 20;
        private readonly Options _options;
        private readonly ITransport _transport;
        private readonly Action<int, int> _onRetry;
        private readonly Random _random = new Random();

        /// <param name="options">whom to ask, and how long to wait.</param>
        /// <param name="transport">HTTP.</param>
        /// <param name="onRetry">gets the status and the seconds of each wait.</param>
        public Client(Options options, ITransport transport, Action<int, int> onRetry)
        {
            _options = options;
            _transport = transport;
            _onRetry = onRetry;
        }

        /// <summary>The names that the server answers to.</summary>
        public async Task<List<string>> ModelsAsync(CancellationToken cancellation)
        {
            var ids = new List<string>();
            var request = new Request { Path = "/v1/models", Body = "" };
            await CallAsync(
                request,
                async response =>
                {
                    object body = Parsed(await ReadBodyAsync(response, cancellation).ConfigureAwait(false));
                    var entries = Json.Member(body, "data") as List<object>;
                    if (entries == null) throw Failure.Unreadable("JSON");
                    foreach (object entry in entries)
                    {
                        if (Json.Member(entry, "id") is string id) ids.Add(id);
                    }
                    return new Answer(text => { });
                },
                cancellation).ConfigureAwait(false);
            return ids;
        }

        /// <summary>One answer, whole.</summary>
        public Task<Answer> ChatAsync(string prompt, CancellationToken cancellation)
        {
            var request = new Request { Path = "/v1/chat/completions", Body = ChatBody(prompt, "") };
            return CallAsync(
                request,
                async response =>
                {
                    var answer = new Answer(text => { });
                    answer.TakeWhole(Parsed(await ReadBodyAsync(response, cancellation).ConfigureAwait(false)));
                    return answer;
                },
                cancellation);
        }

        /// <summary>One answer as it is made.</summary>
        /// <param name="prompt">what to ask.</param>
        /// <param name="onText">gets each piece as it comes.</param>
        /// <param name="keepsConnection">read to the end of the response, so that its connection serves again.</param>
        /// <param name="cancellation">ends the call at once, and the server's work for it.</param>
        public Task<Answer> StreamAsync(
            string prompt, Action<string> onText, bool keepsConnection, CancellationToken cancellation)
        {
            var request = new Request
            {
                Path = "/v1/chat/completions",
                Body = ChatBody(prompt, ",\"stream\":true,\"stream_options\":{\"include_usage\":true}"),
                WantsStream = true,
                KeepsConnection = keepsConnection,
            };
            return CallAsync(
                request,
                response => ReadStreamAsync(response, new Answer(onText), keepsConnection, cancellation),
                cancellation);
        }

        private string ChatBody(string prompt, string extra)
        {
            string model = _options.Model == "" ? "" : "\"model\":" + Json.Quote(_options.Model) + ",";
            return "{" + model + "\"messages\":[{\"role\":\"user\",\"content\":" + Json.Quote(prompt)
                + "}],\"temperature\":0,\"max_tokens\":" + _options.MaxTokens + extra + "}";
        }

        private async Task<Answer> CallAsync(
            Request request, Func<IResponse, Task<Answer>> read, CancellationToken cancellation)
        {
            string sentId = _options.TraceId == "" ? TraceContext.NewTraceId() : _options.TraceId;
            for (int triesLeft = _options.Retries; ; triesLeft--)
            {
                double startedMs = Clock.NowMs;
                string traceId = sentId;
                int wait;
                request.Traceparent = TraceContext.NewTraceparent(sentId);
                try
                {
                    using (IResponse response = await _transport.OpenAsync(request, cancellation).ConfigureAwait(false))
                    {
                        string named = response.Header("x-trace-id");
                        traceId = TraceContext.IsTraceId(named) ? named : sentId;
                        wait = SecondsToWait(response);
                        if (triesLeft == 0 || wait < 0)
                        {
                            if (response.Status != 200)
                            {
                                throw await RefusalAsync(response, cancellation).ConfigureAwait(false);
                            }
                            Answer answer = await read(response).ConfigureAwait(false);
                            answer.TraceId = traceId;
                            answer.StartedMs = startedMs;
                            return answer;
                        }
                        await ReadBodyAsync(response, cancellation).ConfigureAwait(false);
                        _onRetry(response.Status, wait);
                    }
                }
                catch (Failure failure)
                {
                    if (failure.ExitCode != Failure.NoConnection) failure.TraceId = traceId;
                    throw;
                }
                await Task.Delay(TimeSpan.FromSeconds(wait * (1 + Jitter() / 10)), cancellation).ConfigureAwait(false);
            }
        }

        private static async Task<Answer> ReadStreamAsync(
            IResponse response, Answer answer, bool keepsConnection, CancellationToken cancellation)
        {
            if (!Regex.IsMatch(response.Header("content-type"), "\\Atext/event-stream(?:\\z|[; ])", RegexOptions.IgnoreCase))
            {
                throw Failure.Unreadable("not an event stream");
            }
            var events = new SseParser(answer.Take);
            try
            {
                while (keepsConnection || !answer.IsDone)
                {
                    byte[] piece = await response.NextAsync(cancellation).ConfigureAwait(false);
                    if (piece == null) break;
                    if (!answer.IsDone) events.Feed(piece, () => answer.IsDone);
                }
            }
            catch (Failure)
            {
                if (!answer.IsDone) throw;
            }
            answer.End();
            return answer;
        }

        private static async Task<byte[]> ReadBodyAsync(IResponse response, CancellationToken cancellation)
        {
            var body = new MemoryStream();
            while (true)
            {
                byte[] piece = await response.NextAsync(cancellation).ConfigureAwait(false);
                if (piece == null) return body.ToArray();
                if (body.Length + piece.Length > BodyLimit) throw Failure.Unreadable("HTTP");
                body.Write(piece, 0, piece.Length);
            }
        }

        private static object Parsed(byte[] body)
        {
            try
            {
                return Json.Parse(body);
            }
            catch (Failure)
            {
                throw Failure.Unreadable("JSON");
            }
        }

        private static async Task<Failure> RefusalAsync(IResponse response, CancellationToken cancellation)
        {
            byte[] body = await ReadBodyAsync(response, cancellation).ConfigureAwait(false);
            string status = "the server answered " + response.Status, message = null;
            try
            {
                message = Answer.ErrorMessage(Json.Parse(body));
            }
            catch (Failure)
            {
                // a proxy's page: the status says it all
            }
            return new Failure(Failure.Refused, message == null ? status : status + ": " + message);
        }

        /// <summary>Seconds that the server wants us to stay away; -1 when the call isn't to be tried again.</summary>
        private static int SecondsToWait(IResponse response)
        {
            if (response.Status != 429 && response.Status != 503) return -1;
            string named = response.Header("retry-after");
            long seconds = Regex.IsMatch(named, "\\A[0-9]{1,18}\\z") ? long.Parse(named) : 1;
            if (seconds >= 1000000) seconds = 1;
            return seconds <= LongestWaitS ? (int)seconds : -1;
        }

        private double Jitter()
        {
            lock (_random) return _random.NextDouble();
        }
    }
}
