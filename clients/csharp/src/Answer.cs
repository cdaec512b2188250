using System;
using System.Collections.Generic;

namespace Pellucid
{
    /// <summary>What the events of one chat stream, or one body, add up to.</summary>
    public sealed class Answer
    {
        private const string Done = "[DONE]";
        private const int FinishBytes = 63;
        private readonly Action<string> _onText;

        public Answer(Action<string> onText)
        {
            _onText = onText;
            Text = Finish = TraceId = "";
            TextTimesMs = new List<double>();
        }

        public bool IsDone { get; private set; }

        public string Text { get; private set; }

        public string Finish { get; private set; }

        public Usage Usage { get; private set; }

        public string TraceId { get; set; }

        /// <summary>When the request began, each event with text came, and the one with the finish reason.</summary>
        public double StartedMs { get; set; }

        public List<double> TextTimesMs { get; private set; }

        public double FinishedMs { get; private set; }

        /// <summary>Take the data of one event.</summary>
        public void Take(byte[] data)
        {
            if (IsDoneMark(data))
            {
                IsDone = true;
                return;
            }
            var chunk = Json.Parse(data) as Dictionary<string, object>;
            if (chunk == null) throw Failure.Unreadable("JSON");
            if (Json.Member(chunk, "error") != null)
            {
                throw new Failure(Failure.Refused, "the server failed: " + (ErrorMessage(chunk) ?? "unknown error"));
            }
            var choices = Json.Member(chunk, "choices") as List<object>;
            if (choices != null) choices.ForEach(TakeChoice);
            Usage = Usage.Of(chunk) ?? Usage;
        }

        /// <summary>Take the body of an answer that is no stream.</summary>
        public void TakeWhole(object body)
        {
            var choices = Json.Member(body, "choices") as List<object>;
            object choice = choices != null && choices.Count > 0 ? choices[0] : null;
            var text = Json.Member(Json.Member(choice, "message"), "content") as string;
            var reason = Json.Member(choice, "finish_reason") as string;
            if (text == null || reason == null) throw Failure.Unreadable("JSON");
            Text = text;
            TakeFinish(reason);
            Usage = Usage.Of(body);
        }

        /// <summary>The stream is over.</summary>
        public void End()
        {
            if (!IsDone) throw new Failure(Failure.Broken, "the stream ended before [DONE]");
            if (Finish == "") throw new Failure(Failure.Broken, "the stream ended without a finish reason");
        }

        /// <summary><c>error.message</c> of a body, cut; null when it has none.</summary>
        public static string ErrorMessage(object body)
        {
            var message = Json.Member(Json.Member(body, "error"), "message") as string;
            return message == null ? null : Failure.Clip(message);
        }

        private static bool IsDoneMark(byte[] data)
        {
            for (int i = 0; i < data.Length; i++)
            {
                if (i >= Done.Length || data[i] != Done[i]) return false;
            }
            return data.Length == Done.Length;
        }

        private void TakeChoice(object value)
        {
            var choice = value as Dictionary<string, object>;
            object index;
            bool isFirst = choice != null && (!choice.TryGetValue("index", out index) || (index is double && (double)index == 0));
            if (!isFirst) return;
            var text = Json.Member(Json.Member(choice, "delta"), "content") as string;
            if (!string.IsNullOrEmpty(text))
            {
                TextTimesMs.Add(Clock.NowMs);
                _onText(text);
            }
            var reason = Json.Member(choice, "finish_reason") as string;
            if (!string.IsNullOrEmpty(reason))
            {
                TakeFinish(reason);
                FinishedMs = Clock.NowMs;
            }
        }

        private void TakeFinish(string reason)
        {
            Finish = Failure.Clip(Failure.WithoutControls(reason), FinishBytes);
        }
    }
}
