package pellucid;

import java.util.List;
import java.util.Map;

/** Answers every request with a recording, its body in the pieces that a test asks for. */
final class RecordedTransport implements Transport {
    /** @param isWhole whether the body ends well after these bytes, or the connection is lost there */
    record Recording(int status, Map<String, String> headers, byte[] body, boolean isWhole) {}

    private final Recording recording;
    private final List<byte[]> pieces;

    RecordedTransport(Recording recording, List<byte[]> pieces) {
        this.recording = recording;
        this.pieces = pieces;
    }

    @Override
    public Response open(Request request) {
        return new Response() {
            private int at;

            @Override
            public int status() {
                return recording.status;
            }

            @Override
            public String header(String name) {
                return recording.headers.getOrDefault(name, "");
            }

            @Override
            public byte[] next() {
                if (at < pieces.size()) return pieces.get(at++);
                if (recording.isWhole) return null;
                throw new Failure(Failure.BROKEN, "the stream ended before [DONE]");
            }

            @Override
            public void close() {}
        };
    }
}
