using System;
using System.Collections.Generic;
using System.IO;
using System.Text;
using System.Threading;
using System.Threading.Tasks;

namespace Pellucid
{
    /// <summary>The five programs; each returns the exit code.</summary>
    public sealed class Programs
    {
        private const double KneeShare = 0.9;
        private readonly Options _options;
        private readonly Client _client;
        private readonly Stream _output, _errors;
        private bool _hasText;

        public Programs(Options options, ITransport transport, Stream output, Stream errors)
        {
            _options = options;
            _output = output;
            _errors = errors;
            _client = new Client(
                options,
                transport,
                (status, wait) => Write(errors, "retry: the server answered " + status + ", waiting " + wait + " s\n"));
        }

        /// <summary>UTF-8 in every locale, at once.</summary>
        public static void Write(Stream stream, string text)
        {
            byte[] bytes = Encoding.UTF8.GetBytes(text);
            lock (stream)
            {
                stream.Write(bytes, 0, bytes.Length);
                stream.Flush();
            }
        }

        public async Task<int> RunAsync(CancellationToken cancellation)
        {
            try
            {
                switch (_options.Program)
                {
                    case "models": return await ModelsAsync(cancellation).ConfigureAwait(false);
                    case "chat": return await ChatAsync(cancellation).ConfigureAwait(false);
                    case "chat-stream": return await ChatStreamAsync(cancellation).ConfigureAwait(false);
                    case "probe": return await ProbeAsync(cancellation).ConfigureAwait(false);
                    default:
                        bool isLadder = _options.Ladder.Count > 0;
                        return await (isLadder ? LadderAsync(cancellation) : LoadAsync(cancellation)).ConfigureAwait(false);
                }
            }
            catch (Failure failure)
            {
                if (_hasText) Print("\n");
                if (failure.TraceId != "" && _options.Program != "models") PrintTrace(failure.TraceId);
                throw;
            }
            catch (OperationCanceledException)
            {
                if (_hasText) Print("\n");
                throw;
            }
        }

        private async Task<int> ModelsAsync(CancellationToken cancellation)
        {
            List<string> ids = await _client.ModelsAsync(cancellation).ConfigureAwait(false);
            foreach (string id in ids) Print("model: " + id + "\n");
            return 0;
        }

        private async Task<int> ChatAsync(CancellationToken cancellation)
        {
            Answer answer = await _client.ChatAsync(_options.Prompt, cancellation).ConfigureAwait(false);
            Print(answer.Text + "\n");
            return PrintEnd(answer);
        }

        private async Task<int> ChatStreamAsync(CancellationToken cancellation)
        {
            Action<string> onText = text =>
            {
                _hasText = true;
                Print(text);
            };
            Answer answer = await _client.StreamAsync(_options.Prompt, onText, false, cancellation).ConfigureAwait(false);
            _hasText = false;
            Print("\n");
            return PrintEnd(answer);
        }

        private async Task<int> ProbeAsync(CancellationToken cancellation)
        {
            var measurement = new Measurement(_client, _options.Prompt, PrintFailure);
            for (int i = 0; i < _options.Requests; i++)
            {
                await measurement.RunAsync(false, cancellation).ConfigureAwait(false);
            }
            Print(measurement.Counts() + Series.Line("connect", new List<double>()) + measurement.Times());
            return measurement.NumFailed == 0 ? 0 : Failure.Refused;
        }

        private async Task<int> LoadAsync(CancellationToken cancellation)
        {
            var measurement = new Measurement(_client, _options.Prompt, PrintFailure);
            await measurement.RunManyAsync(_options.Requests, _options.Concurrency, cancellation).ConfigureAwait(false);
            string speed = "tokens/s: " + Series.Number(measurement.TokensPerSecond, 1) + "\n";
            Print("concurrency: " + _options.Concurrency + "\n" + measurement.Counts() + speed + measurement.Times());
            return measurement.NumFailed == 0 ? 0 : Failure.Refused;
        }

        /// <summary>What a batch gives: the load at rising concurrencies, and the first with nine tenths of the best.</summary>
        private async Task<int> LadderAsync(CancellationToken cancellation)
        {
            PrintRow("concurrency", "ok", "failed", "tokens/s", "speedup", "ttft p50 ms", "itl p50 ms");
            var warmUp = new Measurement(_client, _options.Prompt, failure => { });
            await warmUp.RunAsync(true, cancellation).ConfigureAwait(false);
            var speeds = new List<double>();
            double best = 0;
            int numFailed = 0;
            foreach (int rung in _options.Ladder)
            {
                var measurement = new Measurement(_client, _options.Prompt, PrintFailure);
                await measurement.RunManyAsync(_options.Requests, rung, cancellation).ConfigureAwait(false);
                double speed = measurement.TokensPerSecond;
                speeds.Add(speed);
                best = Math.Max(best, speed);
                numFailed += measurement.NumFailed;
                PrintRow(
                    rung,
                    measurement.NumOk,
                    measurement.NumFailed,
                    Series.Number(speed, 1),
                    speeds[0] > 0 ? Series.Number(speed / speeds[0], 2) : "-",
                    Series.Percentile(measurement.Ttft, 50, 1),
                    Series.Percentile(measurement.Itl, 50, 1));
            }
            int knee = speeds.FindIndex(speed => speed > 0 && speed >= KneeShare * best);
            Print("knee: " + (knee < 0 ? "-" : _options.Ladder[knee].ToString()) + "\n");
            return numFailed == 0 ? 0 : Failure.Refused;
        }

        private void PrintRow(params object[] cells)
        {
            Print(string.Format("{0,11} {1,7} {2,7} {3,11} {4,8} {5,12} {6,12}\n", cells));
        }

        private int PrintEnd(Answer answer)
        {
            Print("finish: " + answer.Finish + "\n");
            Usage usage = answer.Usage;
            if (usage != null)
            {
                Print("tokens: " + usage.Prompt + " prompt, " + usage.Cached + " cached, ");
                Print(usage.Completion + " completion\n");
            }
            PrintTrace(answer.TraceId);
            return 0;
        }

        private void PrintTrace(string traceId)
        {
            Print("trace: " + traceId + " " + _options.Dashboard + "/#trace=" + traceId + "\n");
        }

        private void PrintFailure(Failure failure)
        {
            Write(_errors, "error: " + failure.Message + "\n");
        }

        private void Print(string text)
        {
            Write(_output, text);
        }
    }
}
