using System.Collections.Generic;
using System.Threading;
using System.Threading.Tasks;

namespace Pellucid.Tests
{
    public sealed class Recording
    {
        public int Status { get; set; }

        public Dictionary<string, string> Headers { get; set; }

        public byte[] Body { get; set; }

        /// <summary>Whether the body ends well after its bytes, or the connection is lost there.</summary>
        public bool IsWhole { get; set; }
    }

    /// <summary>Answers every request with a recording, its body in the pieces that a test asks for.</summary>
    public sealed class RecordedTransport : ITransport
    {
        private readonly Recording _recording;
        private readonly List<byte[]> _pieces;

        public RecordedTransport(Recording recording, List<byte[]> pieces)
        {
            _recording = recording;
            _pieces = pieces;
        }

        public Task<IResponse> OpenAsync(Request request, CancellationToken cancellation)
        {
            return Task.FromResult<IResponse>(new Response(_recording, _pieces));
        }

        private sealed class Response : IResponse
        {
            private readonly Recording _recording;
            private readonly List<byte[]> _pieces;
            private int _at;

            public Response(Recording recording, List<byte[]> pieces)
            {
                _recording = recording;
                _pieces = pieces;
            }

            public int Status
            {
                get { return _recording.Status; }
            }

            public string Header(string name)
            {
                string value;
                return _recording.Headers.TryGetValue(name, out value) ? value : "";
            }

            public Task<byte[]> NextAsync(CancellationToken cancellation)
            {
                if (_at < _pieces.Count) return Task.FromResult(_pieces[_at++]);
                if (_recording.IsWhole) return Task.FromResult<byte[]>(null);
                throw new Failure(Failure.Broken, "the stream ended before [DONE]");
            }

            public void Dispose()
            {
            }
        }
    }
}
