using System;
using System.IO;
using System.Net.Http;
using System.Text;
using System.Threading;
using System.Threading.Tasks;

namespace Pellucid
{
    /// <summary>
    /// HttpClient with time limits of its own: to connect, and of silence; none of the whole answer. The same code runs on
    /// .NET and on Mono, whose HttpClient doesn't give up a connection that is being made when it is canceled.
    /// </summary>
    public sealed class HttpTransport : ITransport
    {
        private readonly Options _options;

        private readonly HttpClient _keeping = NewClient();

        private volatile bool _hasKept;

        public HttpTransport(Options options)
        {
            _options = options;
        }

        public async Task<IResponse> OpenAsync(Request request, CancellationToken cancellation)
        {
            IResponse response = await TryAsync(request, request.KeepsConnection, cancellation).ConfigureAwait(false);
            // Asked afterwards: a connection may have been kept between the call and its turn.
            if (response == null && request.KeepsConnection && _hasKept)
            {
                // The server gave up the kept connection as the request went out: once more, on a fresh one.
                response = await TryAsync(request, false, cancellation).ConfigureAwait(false);
            }
            if (response == null) throw new Failure(Failure.Broken, "the connection ended before the answer was complete");
            _hasKept |= request.KeepsConnection;
            return response;
        }

        private static HttpClient NewClient()
        {
            var handler = new HttpClientHandler { UseProxy = false, UseCookies = false, AllowAutoRedirect = false };
            return new HttpClient(handler) { Timeout = Timeout.InfiniteTimeSpan }; // by default 100 s for a whole answer
        }

        /// <summary>Null when the connection ended before there was a head.</summary>
        private async Task<IResponse> TryAsync(Request request, bool keepsConnection, CancellationToken cancellation)
        {
            var connected = new TaskCompletionSource<bool>(TaskCreationOptions.RunContinuationsAsynchronously);
            HttpRequestMessage message = Message(request, keepsConnection, connected);
            // Asked to close, a client still keeps the connection unless the server says close too: one of its own has none
            // to reuse, and takes its connection along.
            HttpClient client = keepsConnection ? _keeping : NewClient();
            IDisposable owned = keepsConnection ? null : client;
            // ResponseHeadersRead: by default the whole body is read before anything of it is given
            Task<HttpResponseMessage> head = Task.Run(
                () => client.SendAsync(message, HttpCompletionOption.ResponseHeadersRead, cancellation));
            Task either = Task.WhenAny(connected.Task, head);
            if (!await Wait.ForAsync(either, _options.ConnectTimeoutMs, cancellation).ConfigureAwait(false))
            {
                throw GivenUp(head, owned, NoConnection(" within " + _options.ConnectTimeoutMs + " ms"));
            }
            if (!await Wait.ForAsync(head, _options.IdleTimeoutMs, cancellation).ConfigureAwait(false))
            {
                throw GivenUp(head, owned, Wait.Silence(_options.IdleTimeoutMs));
            }
            try
            {
                HttpResponseMessage response = await head.ConfigureAwait(false);
                Stream body = await response.Content.ReadAsStreamAsync().ConfigureAwait(false);
                return new HttpBody(response, body, owned, _options.IdleTimeoutMs, request.WantsStream);
            }
            catch (HttpRequestException thrown)
            {
                if (owned != null) owned.Dispose();
                if (!connected.Task.IsCompleted) throw NoConnection("");
                if (!(thrown.InnerException is IOException)) throw Failure.Unreadable("HTTP");
                return null;
            }
        }

        private HttpRequestMessage Message(Request request, bool keepsConnection, TaskCompletionSource<bool> connected)
        {
            var message = new HttpRequestMessage(
                request.Body == "" ? HttpMethod.Get : HttpMethod.Post, _options.Url + request.Path);
            message.Content = new AnnouncingContent(Encoding.UTF8.GetBytes(request.Body), connected);
            if (request.Body != "") message.Content.Headers.TryAddWithoutValidation("content-type", "application/json");
            string accept = request.WantsStream ? "text/event-stream" : "application/json";
            message.Headers.TryAddWithoutValidation("accept", accept);
            message.Headers.TryAddWithoutValidation("traceparent", request.Traceparent);
            message.Headers.ExpectContinue = false;
            if (!keepsConnection) message.Headers.ConnectionClose = true;
            if (_options.ApiKey != "") message.Headers.TryAddWithoutValidation("authorization", "Bearer " + _options.ApiKey);
            return message;
        }

        private Failure NoConnection(string limit)
        {
            return new Failure(Failure.NoConnection, "no connection to " + _options.Url.Substring("http://".Length) + limit);
        }

        /// <summary>What still comes of a request that nobody waits for any more is dropped.</summary>
        private static Failure GivenUp(Task<HttpResponseMessage> head, IDisposable owned, Failure failure)
        {
            head.ContinueWith(
                late =>
                {
                    if (late.Status == TaskStatus.RanToCompletion) late.Result.Dispose();
                    else GC.KeepAlive(late.Exception); // seen, so it isn't reported as unobserved
                    if (owned != null) owned.Dispose();
                },
                TaskScheduler.Default);
            return failure;
        }
    }
}
