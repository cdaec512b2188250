using System;
using System.Collections.Generic;
using System.IO;
using System.Net.Http;
using System.Threading;
using System.Threading.Tasks;

namespace Pellucid
{
    /// <summary>
    /// A body as its bytes come. CopyToAsync hands over each chunk before it looks at the next; ReadAsync would lose what
    /// came together with a chunk that can't be read.
    /// </summary>
    public sealed class HttpBody : IResponse
    {
        private readonly HttpResponseMessage _response;
        private readonly IDisposable _owned;
        private readonly int _idleTimeoutMs;
        private readonly bool _isStream;
        private readonly CancellationTokenSource _over = new CancellationTokenSource();
        private readonly PieceQueue _pieces = new PieceQueue();
        private readonly Task _copying;

        /// <param name="response">its head has come.</param>
        /// <param name="body">what of it comes yet.</param>
        /// <param name="owned">disposed of with this; null for nothing.</param>
        /// <param name="idleTimeoutMs">the longest silence.</param>
        /// <param name="isStream">whether it should end with [DONE].</param>
        public HttpBody(HttpResponseMessage response, Stream body, IDisposable owned, int idleTimeoutMs, bool isStream)
        {
            _response = response;
            _owned = owned;
            _idleTimeoutMs = idleTimeoutMs;
            _isStream = isStream;
            _copying = CopyAsync(body);
        }

        public int Status
        {
            get { return (int)_response.StatusCode; }
        }

        public string Header(string name)
        {
            IEnumerable<string> values;
            bool isThere = _response.Headers.TryGetValues(name, out values)
                || _response.Content.Headers.TryGetValues(name, out values);
            return isThere ? string.Join(", ", values).Trim(' ', '\t') : ""; // Mono leaves spaces at the end
        }

        public async Task<byte[]> NextAsync(CancellationToken cancellation)
        {
            Task<byte[]> next = _pieces.TakeAsync();
            if (!await Wait.ForAsync(next, _idleTimeoutMs, cancellation).ConfigureAwait(false))
            {
                throw Wait.Silence(_idleTimeoutMs);
            }
            byte[] piece = await next.ConfigureAwait(false);
            if (piece != null) return piece;
            try
            {
                await _copying.ConfigureAwait(false);
                return null;
            }
            catch (IOException thrown)
            {
                throw MeaningOf(thrown);
            }
            catch (HttpRequestException thrown)
            {
                throw MeaningOf(thrown.InnerException ?? thrown);
            }
        }

        /// <summary>Canceling closes the connection at once, so that the server stops working for nobody.</summary>
        public void Dispose()
        {
            _over.Cancel();
            _response.Dispose();
            if (_owned != null) _owned.Dispose();
        }

        private async Task CopyAsync(Stream body)
        {
            try
            {
                await body.CopyToAsync(_pieces, PieceQueue.PieceBytes, _over.Token).ConfigureAwait(false);
            }
            finally
            {
                _pieces.End();
            }
        }

        /// <summary>.NET says which it is; Mono has one exception for a lost connection and an unreadable chunk.</summary>
        private Failure MeaningOf(Exception thrown)
        {
            bool isUnreadable = thrown.GetType().Name == "HttpIOException" && !thrown.Message.Contains("(ResponseEnded)");
            if (isUnreadable) return Failure.Unreadable("HTTP");
            const string InStream = "the stream ended before [DONE]";
            return new Failure(Failure.Broken, _isStream ? InStream : "the connection ended before the answer was complete");
        }
    }
}
