using System;
using System.Threading;
using System.Threading.Tasks;

namespace Pellucid
{
    /// <summary>Waiting with a limit for what can't be canceled everywhere.</summary>
    public static class Wait
    {
        /// <summary>Whether the task ended, well or not, within the limit. Throws when the caller gave up.</summary>
        public static async Task<bool> ForAsync(Task task, int limitMs, CancellationToken cancellation)
        {
            using (var over = CancellationTokenSource.CreateLinkedTokenSource(cancellation))
            {
                await Task.WhenAny(task, Task.Delay(limitMs, over.Token)).ConfigureAwait(false);
                over.Cancel();
                cancellation.ThrowIfCancellationRequested();
                return task.IsCompleted;
            }
        }

        public static Failure Silence(int limitMs)
        {
            return new Failure(Failure.Silent, "nothing arrived for " + limitMs + " ms");
        }
    }
}
