using System.IO;
using System.Net;
using System.Net.Http;
using System.Threading.Tasks;

namespace Pellucid
{
    /// <summary>A request's body, empty for a GET, that tells when there is a connection to write it to.</summary>
    public sealed class AnnouncingContent : HttpContent
    {
        private readonly byte[] _bytes;
        private readonly TaskCompletionSource<bool> _connected;

        public AnnouncingContent(byte[] bytes, TaskCompletionSource<bool> connected)
        {
            _bytes = bytes;
            _connected = connected;
        }

        protected override Task SerializeToStreamAsync(Stream stream, TransportContext context)
        {
            _connected.TrySetResult(true);
            return stream.WriteAsync(_bytes, 0, _bytes.Length);
        }

        protected override bool TryComputeLength(out long length)
        {
            length = _bytes.Length;
            return true;
        }
    }
}
