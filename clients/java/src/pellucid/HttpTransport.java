package pellucid;

import java.io.EOFException;
import java.net.ConnectException;
import java.net.SocketException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpConnectTimeoutException;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.ByteBuffer;
import java.nio.channels.ClosedChannelException;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import java.util.concurrent.Executors;
import java.util.concurrent.Flow;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/** java.net.http, pinned to HTTP/1.1: by default it asks for an upgrade to HTTP/2, at which servers lose the body. */
final class HttpTransport implements Transport {
    private static final long TIMER_SLACK_MS = 250;

    static {
        System.setProperty("jdk.httpclient.allowRestrictedHeaders", "connection");
    }

    private final Options options;
    private final Executor workers = Executors.newCachedThreadPool(HttpTransport::daemon);
    private final HttpClient keeping;
    private volatile boolean hasKept;

    HttpTransport(Options options) {
        this.options = options;
        keeping = newClient();
    }

    private HttpClient newClient() {
        return HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).followRedirects(HttpClient.Redirect.NEVER)
            .proxy(HttpClient.Builder.NO_PROXY).connectTimeout(Duration.ofMillis(options.connectTimeoutMs()))
            .executor(workers).build();
    }

    private static Thread daemon(Runnable work) {
        Thread thread = new Thread(work, "http");
        thread.setDaemon(true);
        return thread;
    }

    @Override
    public Response open(Request request) {
        Response response = attempt(request, request.keepsConnection());
        // Asked afterwards: a connection may have been kept between the call and its turn.
        if (response == null && request.keepsConnection() && hasKept) {
            // The server gave up the kept connection as the request went out: once more, on a fresh one.
            response = attempt(request, false);
        }
        if (response == null) throw new Failure(Failure.BROKEN, "the connection ended before the answer was complete");
        hasKept |= request.keepsConnection();
        return response;
    }

    /** Return null when the connection ended before there was a head. */
    private Response attempt(Request request, boolean keepsConnection) {
        CompletableFuture<Void> connected = new CompletableFuture<>();
        HttpRequest.Builder builder = HttpRequest.newBuilder(URI.create(options.url() + request.path()))
            .header("accept", request.wantsStream() ? "text/event-stream" : "application/json")
            .header("traceparent", request.traceparent());
        if (!keepsConnection) builder.header("connection", "close");
        if (!options.apiKey.isEmpty()) builder.header("authorization", "Bearer " + options.apiKey);
        if (request.body().isEmpty()) {
            builder.GET();
            // No body tells of the connection: it is there when connecting hasn't failed in time.
            connected.completeOnTimeout(null, options.connectTimeoutMs() + TIMER_SLACK_MS, TimeUnit.MILLISECONDS);
        } else {
            builder.header("content-type", "application/json");
            builder.POST(new Announcing(HttpRequest.BodyPublishers.ofString(request.body()), connected));
        }
        // Asked to close, a client still keeps the connection unless the server says close too: one of its own has none to reuse.
        HttpClient client = keepsConnection ? keeping : newClient();
        var head = client.sendAsync(builder.build(),
            info -> new ArrivingBody(options.idleTimeoutMs(), request.wantsStream()));
        try {
            CompletableFuture.anyOf(connected, head).get();
            HttpResponse<ArrivingBody> response = head.get(options.idleTimeoutMs(), TimeUnit.MILLISECONDS);
            return response.body().under(response);
        } catch (TimeoutException silent) {
            head.cancel(true);
            throw new Failure(Failure.SILENT, "nothing arrived for " + options.idleTimeoutMs() + " ms");
        } catch (ExecutionException failed) {
            Failure failure = failureBeforeHead(failed.getCause());
            if (failure == null) return null;
            throw failure;
        } catch (InterruptedException interrupted) {
            throw new IllegalStateException(interrupted);
        }
    }

    /** Return null when the connection ended. */
    private Failure failureBeforeHead(Throwable thrown) {
        String authority = options.url().substring("http://".length());
        if (isCausedBy(thrown, HttpConnectTimeoutException.class)) {
            String limit = " within " + options.connectTimeoutMs() + " ms";
            return new Failure(Failure.NO_CONNECTION, "no connection to " + authority + limit);
        }
        if (isCausedBy(thrown, ConnectException.class)) {
            return new Failure(Failure.NO_CONNECTION, "no connection to " + authority);
        }
        return isOfConnection(thrown) ? null : Failure.unreadable("HTTP");
    }

    /** Whether the connection is at fault; otherwise the library couldn't read what came over it. */
    static boolean isOfConnection(Throwable thrown) {
        if (thrown.getCause() != null) return isOfConnection(thrown.getCause());
        return thrown instanceof EOFException || thrown instanceof SocketException || thrown instanceof ClosedChannelException
            || List.of("Broken pipe", "Connection reset by peer").contains(String.valueOf(thrown.getMessage()));
    }

    private static boolean isCausedBy(Throwable thrown, Class<?> type) {
        return thrown != null && (type.isInstance(thrown) || isCausedBy(thrown.getCause(), type));
    }

    /** A request's body that tells when there is a connection to write it to. */
    private record Announcing(HttpRequest.BodyPublisher body, CompletableFuture<Void> connected)
        implements HttpRequest.BodyPublisher {
        @Override
        public long contentLength() {
            return body.contentLength();
        }

        @Override
        public void subscribe(Flow.Subscriber<? super ByteBuffer> subscriber) {
            connected.complete(null);
            body.subscribe(subscriber);
        }
    }
}
