using System;
using System.Collections.Generic;

namespace Pellucid
{
    /// <summary>What an answer cost, in tokens.</summary>
    public sealed class Usage
    {
        private const double MostTokens = 9007199254740991; // 2^53 - 1

        private Usage(long prompt, long cached, long completion)
        {
            Prompt = prompt;
            Cached = cached;
            Completion = completion;
        }

        public long Prompt { get; private set; }

        public long Cached { get; private set; }

        public long Completion { get; private set; }

        /// <summary>Null when the body or chunk has none.</summary>
        public static Usage Of(object body)
        {
            object usage = Json.Member(body, "usage");
            if (!(usage is Dictionary<string, object>)) return null;
            long cached = Count(Json.Member(usage, "prompt_tokens_details"), "cached_tokens");
            return new Usage(Count(usage, "prompt_tokens"), cached, Count(usage, "completion_tokens"));
        }

        private static long Count(object members, string name)
        {
            object value = Json.Member(members, name);
            if (!(value is double)) return 0;
            var number = (double)value;
            return number > 0 && number <= MostTokens && number == Math.Floor(number) ? (long)number : 0;
        }
    }
}
