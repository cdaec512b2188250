using System;
using System.Collections;
using System.IO;
using System.Threading;
using System.Threading.Tasks;

namespace Pellucid
{
    /// <summary>The command line.</summary>
    public static class Program
    {
        private const int Interrupted = 130;

        public static void Main(string[] arguments)
        {
            using (var interrupt = new CancellationTokenSource())
            {
                Console.CancelKeyPress += (sender, pressed) =>
                {
                    pressed.Cancel = true; // end by ourselves, so that the requests are given up first
                    interrupt.Cancel();
                };
                Stream output = Console.OpenStandardOutput(), errors = Console.OpenStandardError();
                int code = RunAsync(arguments, Environment.GetEnvironmentVariables(), output, errors, interrupt.Token)
                    .GetAwaiter().GetResult();
                Environment.Exit(code); // returning from Main hangs now and then under Mono
            }
        }

        /// <summary>Run a program and return its exit code.</summary>
        public static async Task<int> RunAsync(
            string[] arguments, IDictionary environment, Stream output, Stream errors, CancellationToken interrupt)
        {
            try
            {
                Options options = Options.Read(arguments, environment);
                if (options == null)
                {
                    Programs.Write(output, Options.Help);
                    return 0;
                }
                return await new Programs(options, new HttpTransport(options), output, errors).RunAsync(interrupt)
                    .ConfigureAwait(false);
            }
            catch (Failure failure)
            {
                Programs.Write(errors, "error: " + failure.Message + "\n");
                return failure.ExitCode;
            }
            catch (OperationCanceledException)
            {
                return Interrupted;
            }
        }
    }
}
