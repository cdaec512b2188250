using System;
using System.Collections.Concurrent;
using System.IO;
using System.Threading;
using System.Threading.Tasks;

namespace Pellucid
{
    /// <summary>A stream that is written at one end and gives what was written, piece by piece, at the other.</summary>
    public sealed class PieceQueue : Stream
    {
        public const int PieceBytes = 16384;
        private const int MostPieces = 64;
        private readonly ConcurrentQueue<byte[]> _pieces = new ConcurrentQueue<byte[]>();
        private readonly SemaphoreSlim _free = new SemaphoreSlim(MostPieces), _taken = new SemaphoreSlim(0);

        public override bool CanRead { get { return false; } }

        public override bool CanSeek { get { return false; } }

        public override bool CanWrite { get { return true; } }

        public override long Length { get { throw new NotSupportedException(); } }

        public override long Position
        {
            get { throw new NotSupportedException(); }
            set { throw new NotSupportedException(); }
        }

        /// <summary>The next piece; null after the last one.</summary>
        public async Task<byte[]> TakeAsync()
        {
            await _taken.WaitAsync().ConfigureAwait(false);
            byte[] piece;
            bool isPiece = _pieces.TryDequeue(out piece);
            (isPiece ? _free : _taken).Release(); // the end stays
            return piece;
        }

        /// <summary>There will be no more.</summary>
        public void End()
        {
            _taken.Release();
        }

        public override async Task WriteAsync(byte[] buffer, int offset, int count, CancellationToken cancellation)
        {
            await _free.WaitAsync(cancellation).ConfigureAwait(false);
            var piece = new byte[count];
            Buffer.BlockCopy(buffer, offset, piece, 0, count);
            _pieces.Enqueue(piece);
            _taken.Release();
        }

        public override void Write(byte[] buffer, int offset, int count)
        {
            WriteAsync(buffer, offset, count, CancellationToken.None).GetAwaiter().GetResult();
        }

        public override void Flush()
        {
        }

        public override int Read(byte[] buffer, int offset, int count)
        {
            throw new NotSupportedException();
        }

        public override long Seek(long offset, SeekOrigin origin)
        {
            throw new NotSupportedException();
        }

        public override void SetLength(long value)
        {
            throw new NotSupportedException();
        }
    }
}
