using System;
using System.Threading;
using System.Threading.Tasks;

namespace Pellucid
{
    /// <summary>What the client needs of HTTP.</summary>
    public interface ITransport
    {
        /// <summary>Send a request; a Failure when no head of an answer comes.</summary>
        Task<IResponse> OpenAsync(Request request, CancellationToken cancellation);
    }

    /// <summary>An answer whose head has come; disposing gives up what is left of the body.</summary>
    public interface IResponse : IDisposable
    {
        int Status { get; }

        /// <summary>A header's value, "" when it is absent.</summary>
        string Header(string name);

        /// <summary>The next bytes of the body as they come; null at its end.</summary>
        Task<byte[]> NextAsync(CancellationToken cancellation);
    }

    public sealed class Request
    {
        public string Path { get; set; }

        /// <summary>"" for a GET.</summary>
        public string Body { get; set; }

        public string Traceparent { get; set; }

        public bool WantsStream { get; set; }

        public bool KeepsConnection { get; set; }
    }
}
