using System;
using System.Collections;
using System.Collections.Generic;
using System.IO;
using System.Text;
using System.Threading;
using System.Threading.Tasks;

namespace Pellucid.Tests
{
    /// <summary>
    /// The client in one process for many tests; tests/clients/worker.py says what it is asked and answers.
    /// </summary>
    public static class Worker
    {
        private delegate Task<int> Run(Stream output, Stream errors);

        public static void Main()
        {
            for (string line; (line = Console.In.ReadLine()) != null;)
            {
                string[] words = line.Split(' ');
                Result result;
                if (words[0] == "run") result = RunProgram(words);
                else if (words[0] == "once") result = Once(RecordingOf(words));
                else if (words[0] == "cut") result = CutEverywhere(RecordingOf(words));
                else result = LoseEverywhere(RecordingOf(words));
                Console.Out.WriteLine(result.Code + " " + Coded(result.Output) + " " + Coded(result.Errors));
                Console.Out.Flush();
            }
            Environment.Exit(0);
        }

        /// <summary><c>run .ARGUMENT ... = .NAME .VALUE ...</c></summary>
        private static Result RunProgram(string[] words)
        {
            int end = Array.IndexOf(words, "=");
            var arguments = new string[end - 1];
            for (int i = 1; i < end; i++) arguments[i - 1] = Text(words[i]);
            var environment = new Hashtable();
            for (int i = end + 1; i < words.Length; i += 2) environment[Text(words[i])] = Text(words[i + 1]);
            return Captured((output, errors) => Program.RunAsync(
                arguments, environment, output, errors, CancellationToken.None));
        }

        private static Result Once(Recording recording)
        {
            return ChatStream(recording, new List<byte[]> { recording.Body });
        }

        private static Result CutEverywhere(Recording recording)
        {
            byte[] body = recording.Body;
            Result whole = ChatStream(recording, new List<byte[]> { body });
            var single = new List<byte[]>();
            foreach (byte value in body) single.Add(new[] { value });
            if (!ChatStream(recording, single).Equals(whole)) return new Result { Code = -1, Output = "byte by byte", Errors = "" };
            for (int cut = 1; cut < body.Length; cut++)
            {
                var two = new List<byte[]> { Part(body, 0, cut), Part(body, cut, body.Length) };
                Result seen = ChatStream(recording, two);
                if (seen.Equals(whole)) continue;
                return new Result { Code = -1, Output = "cut after " + cut + ": " + seen.Output, Errors = seen.Errors };
            }
            return whole;
        }

        /// <summary>The exit code after each number of bytes, where it changes.</summary>
        private static Result LoseEverywhere(Recording recording)
        {
            var changes = new StringBuilder();
            int last = -1;
            for (int kept = 0; kept <= recording.Body.Length; kept++)
            {
                int code = ChatStream(recording, new List<byte[]> { Part(recording.Body, 0, kept) }).Code;
                if (code != last) changes.Append(kept).Append(' ').Append(code).Append('\n');
                last = code;
            }
            return new Result { Code = 0, Output = changes.ToString(), Errors = "" };
        }

        private static Result ChatStream(Recording recording, List<byte[]> pieces)
        {
            var arguments = new[] { "chat-stream", "--trace-id", "0123456789abcdef0123456789abcdef" };
            return Captured(async (output, errors) =>
            {
                Options options = Options.Read(arguments, new Hashtable());
                try
                {
                    var programs = new Programs(options, new RecordedTransport(recording, pieces), output, errors);
                    return await programs.RunAsync(CancellationToken.None);
                }
                catch (Failure failure)
                {
                    Programs.Write(errors, "error: " + failure.Message + "\n");
                    return failure.ExitCode;
                }
            });
        }

        /// <summary><c>once|cut|lose STATUS .HEADERS .BODY whole|lost</c>, headers a line each.</summary>
        private static Recording RecordingOf(string[] words)
        {
            var headers = new Dictionary<string, string>();
            foreach (string line in Text(words[2]).Split('\n'))
            {
                headers[line.Substring(0, line.IndexOf(':'))] = line.Substring(line.IndexOf(':') + 1);
            }
            return new Recording
            {
                Status = int.Parse(words[1]),
                Headers = headers,
                Body = Convert.FromBase64String(words[3].Substring(1)),
                IsWhole = words[4] == "whole",
            };
        }

        private static Result Captured(Run run)
        {
            MemoryStream output = new MemoryStream(), errors = new MemoryStream();
            int code = run(output, errors).GetAwaiter().GetResult();
            return new Result
            {
                Code = code,
                Output = Encoding.UTF8.GetString(output.ToArray()),
                Errors = Encoding.UTF8.GetString(errors.ToArray()),
            };
        }

        private static byte[] Part(byte[] bytes, int from, int to)
        {
            var part = new byte[to - from];
            Array.Copy(bytes, from, part, 0, part.Length);
            return part;
        }

        private static string Text(string word)
        {
            return Encoding.UTF8.GetString(Convert.FromBase64String(word.Substring(1)));
        }

        private static string Coded(string text)
        {
            return "." + Convert.ToBase64String(Encoding.UTF8.GetBytes(text));
        }

        private struct Result
        {
            public int Code;
            public string Output;
            public string Errors;
        }
    }
}
