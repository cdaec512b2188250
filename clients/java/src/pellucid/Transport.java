package pellucid;

/** What the client needs of HTTP. */
interface Transport {
    /** @throws Failure when no head of an answer comes */
    Response open(Request request);

    /** @param body "" for a GET */
    record Request(String path, String body, boolean wantsStream, boolean keepsConnection, String traceparent) {}

    /** An answer whose head has come. */
    interface Response extends AutoCloseable {
        int status();

        /** A header's value, "" when it is absent. */
        String header(String name);

        /** The next bytes of the body as they come; null at its end. @throws Failure when there will be none */
        byte[] next();

        /** Give up what is left of the body. */
        @Override
        void close();
    }
}
