package pellucid;

import java.net.http.HttpResponse;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.Flow;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** A body as its bytes come: the library's line reader would wait for whole lines, and has no limit for silence. */
final class ArrivingBody implements HttpResponse.BodySubscriber<ArrivingBody>, Transport.Response {
    private static final Object END = new Object();
    private final LinkedBlockingQueue<Object> arrived = new LinkedBlockingQueue<>();
    private final CompletableFuture<Flow.Subscription> subscription = new CompletableFuture<>();
    private final int idleTimeoutMs;
    private final boolean isStream;
    private HttpResponse<ArrivingBody> head;
    private boolean isOver;

    ArrivingBody(int idleTimeoutMs, boolean isStream) {
        this.idleTimeoutMs = idleTimeoutMs;
        this.isStream = isStream;
    }

    /** Join the body to its head, which comes by another way. */
    ArrivingBody under(HttpResponse<ArrivingBody> response) {
        head = response;
        return this;
    }

    @Override
    public CompletionStage<ArrivingBody> getBody() {
        return CompletableFuture.completedStage(this); // at once, not at the end
    }

    @Override
    public void onSubscribe(Flow.Subscription given) {
        subscription.complete(given);
        given.request(1);
    }

    @Override
    public void onNext(List<ByteBuffer> buffers) {
        byte[] piece = new byte[buffers.stream().mapToInt(ByteBuffer::remaining).sum()];
        int at = 0;
        for (ByteBuffer buffer : buffers) {
            int length = buffer.remaining();
            buffer.get(piece, at, length);
            at += length;
        }
        arrived.add(piece);
    }

    @Override
    public void onError(Throwable thrown) {
        arrived.add(thrown);
    }

    @Override
    public void onComplete() {
        arrived.add(END);
    }

    @Override
    public byte[] next() {
        if (isOver) return null;
        Object next;
        try {
            next = arrived.poll(idleTimeoutMs, TimeUnit.MILLISECONDS);
        } catch (InterruptedException interrupted) {
            throw new IllegalStateException(interrupted);
        }
        if (next instanceof byte[] piece) {
            subscription.join().request(1);
            return piece;
        }
        if (next == null) throw new Failure(Failure.SILENT, "nothing arrived for " + idleTimeoutMs + " ms");
        isOver = true;
        if (next instanceof Throwable thrown) throw failureInBody(thrown);
        return null;
    }

    private Failure failureInBody(Throwable thrown) {
        if (!HttpTransport.isOfConnection(thrown)) return Failure.unreadable("HTTP");
        return new Failure(Failure.BROKEN, isStream ? "the stream ended before [DONE]"
            : "the connection ended before the answer was complete");
    }

    @Override
    public void close() {
        if (!isOver) subscription.join().cancel();
    }

    @Override
    public int status() {
        return head.statusCode();
    }

    @Override
    public String header(String name) {
        return head.headers().firstValue(name).orElse("");
    }
}
