using System;
using System.Collections.Generic;
using System.Threading;
using System.Threading.Tasks;

namespace Pellucid
{
    /// <summary>What many streams add up to. A failed stream is counted as one and goes into nothing else.</summary>
    public sealed class Measurement
    {
        private readonly Client _client;
        private readonly string _prompt;
        private readonly Action<Failure> _onFailure;
        private readonly object _lock = new object();
        private readonly List<double> _total = new List<double>();
        private double _seconds;

        public Measurement(Client client, string prompt, Action<Failure> onFailure)
        {
            _client = client;
            _prompt = prompt;
            _onFailure = onFailure;
            Ttft = new List<double>();
            Itl = new List<double>();
        }

        public int NumOk { get; private set; }

        public int NumFailed { get; private set; }

        public long NumTokens { get; private set; }

        public List<double> Ttft { get; private set; }

        public List<double> Itl { get; private set; }

        public double TokensPerSecond
        {
            get { return NumTokens / _seconds; }
        }

        public async Task RunAsync(bool keepsConnection, CancellationToken cancellation)
        {
            try
            {
                Count(await _client.StreamAsync(_prompt, text => { }, keepsConnection, cancellation).ConfigureAwait(false));
            }
            catch (Failure failure)
            {
                lock (_lock)
                {
                    NumFailed++;
                    _onFailure(failure);
                }
            }
        }

        /// <summary>Never more than <paramref name="concurrency"/> streams at once.</summary>
        public async Task RunManyAsync(int numRequests, int concurrency, CancellationToken cancellation)
        {
            double startedMs = Clock.NowMs;
            var runs = new List<Task>();
            using (var slots = new SemaphoreSlim(concurrency))
            {
                for (int i = 0; i < numRequests; i++)
                {
                    await slots.WaitAsync(cancellation).ConfigureAwait(false);
                    runs.Add(RunInSlotAsync(slots, cancellation));
                }
                await Task.WhenAll(runs).ConfigureAwait(false);
            }
            _seconds = (Clock.NowMs - startedMs) / 1e3;
        }

        public string Counts()
        {
            return "requests: " + NumOk + " ok, " + NumFailed + " failed\ntokens: " + NumTokens + "\n";
        }

        public string Times()
        {
            return Series.Line("ttft", Ttft) + Series.Line("itl", Itl) + Series.Line("total", _total);
        }

        private async Task RunInSlotAsync(SemaphoreSlim slots, CancellationToken cancellation)
        {
            try
            {
                await RunAsync(true, cancellation).ConfigureAwait(false);
            }
            finally
            {
                slots.Release();
            }
        }

        private void Count(Answer answer)
        {
            lock (_lock)
            {
                NumOk++;
                NumTokens += answer.Usage == null ? 0 : answer.Usage.Completion;
                List<double> times = answer.TextTimesMs;
                if (times.Count > 0) Ttft.Add(times[0] - answer.StartedMs);
                for (int i = 1; i < times.Count; i++) Itl.Add(times[i] - times[i - 1]);
                _total.Add(answer.FinishedMs - answer.StartedMs);
            }
        }
    }
}
