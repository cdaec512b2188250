#include "exchange.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "trace_context.h"

enum { LONGEST_WAIT_S = 30, MOST_REQUEST_BYTES = 16 << 20 };

/* What became of one attempt. */
enum attempt { ATTEMPT_OVER, ATTEMPT_NOT_ANSWERED };

void exchange_init(struct exchange *exchange)
{
    *exchange = (struct exchange){.connection = {.socket = -1}};
    reply_init(&exchange->reply, false, NULL, NULL);
}

void exchange_free(struct exchange *exchange)
{
    connection_close(&exchange->connection);
    reply_free(&exchange->reply);
}

void chat_body(struct buffer *body, const struct options *options, bool stream)
{
    char number[32];
    buffer_init(body, MOST_REQUEST_BYTES);
    buffer_text(body, "{");
    if (*options->model) {
        buffer_text(body, "\"model\":");
        json_quote(body, options->model);
        buffer_text(body, ",");
    }
    buffer_text(body, "\"messages\":[{\"role\":\"user\",\"content\":");
    json_quote(body, options->prompt);
    snprintf(number, sizeof number, "%ld", options->max_tokens);
    buffer_text(body, "}],\"temperature\":0,\"max_tokens\":");
    buffer_text(body, number);
    if (stream)
        buffer_text(body, ",\"stream\":true,\"stream_options\":{\"include_usage\":true}");
    buffer_text(body, "}");
}

static void request_bytes(
    struct buffer *request, const struct options *options, const struct call *call, const char *trace_id)
{
    char traceparent[56], length[32];
    traceparent_make(traceparent, trace_id);
    buffer_init(request, MOST_REQUEST_BYTES + 4096);
    const char *head[] = {call->body.length ? "POST " : "GET ", call->path, " HTTP/1.1\r\nhost: ", options->authority,
                          "\r\nuser-agent: pellucid-client-c\r\naccept: ",
                          call->wants_stream ? "text/event-stream" : "application/json", "\r\ntraceparent: ", traceparent,
                          call->keeps_connection ? "" : "\r\nconnection: close"};
    for (size_t i = 0; i < sizeof head / sizeof *head; i++)
        buffer_text(request, head[i]);
    if (*options->api_key) {
        buffer_text(request, "\r\nauthorization: Bearer ");
        buffer_text(request, options->api_key);
    }
    if (call->body.length) {
        snprintf(length, sizeof length, "%zu", call->body.length);
        buffer_text(request, "\r\ncontent-type: application/json\r\ncontent-length: ");
        buffer_text(request, length);
    }
    buffer_text(request, "\r\n\r\n");
    buffer_append(request, call->body.data, call->body.length);
}

/* Read until the reply is over, and to its last byte if the connection is to be kept. */
static enum attempt read_reply(struct exchange *exchange, const struct options *options, const struct call *call)
{
    char data[16384];
    size_t length;
    bool has_bytes = false;
    struct reply *reply = &exchange->reply;
    while (!reply->is_over || (call->keeps_connection && reply->answer.is_done && !reply->is_http_complete &&
                               reply->failure.outcome == OUTCOME_OK)) {
        enum receive_result result = connection_receive(
            &exchange->connection, data, sizeof data, &length, options->idle_timeout_ms);
        if (result != RECEIVED) {
            connection_close(&exchange->connection);
            if (!has_bytes && result == ENDED)
                return ATTEMPT_NOT_ANSWERED;
            if (result == SILENT && !reply->is_over)
                fail(&reply->failure, OUTCOME_SILENT, "nothing arrived for %ld ms", options->idle_timeout_ms);
            break;
        }
        has_bytes = true;
        reply_feed(reply, data, length);
    }
    reply_end(reply);
    return ATTEMPT_OVER;
}

static enum attempt attempt(struct exchange *exchange, const struct options *options, const struct call *call,
                            const struct buffer *request)
{
    struct reply *reply = &exchange->reply;
    reply_free(reply);
    reply_init(reply, call->wants_stream, call->out, monotonic_ms);
    exchange->has_connected = exchange->connection.socket < 0;
    if (exchange->has_connected && !connection_open(&exchange->connection, options, &reply->failure))
        return ATTEMPT_OVER;
    enum attempt result = ATTEMPT_NOT_ANSWERED;
    if (connection_send(&exchange->connection, request->data, request->length, options->idle_timeout_ms))
        result = read_reply(exchange, options, call);
    if (!call->keeps_connection || !reply->is_http_complete || !reply->http.keeps_connection)
        connection_close(&exchange->connection);
    if (result == ATTEMPT_NOT_ANSWERED && exchange->has_connected) {
        reply_end(reply);
        return ATTEMPT_OVER;
    }
    return result;
}

/* Seconds that the server wants us to stay away; -1 when the call isn't to be tried again. */
static int wait_before_retry(const struct reply *reply)
{
    if (!reply->http.is_head_complete || (reply->http.status != 429 && reply->http.status != 503))
        return -1;
    int wait = reply->http.retry_after_s < 0 ? 1 : reply->http.retry_after_s;
    return wait <= LONGEST_WAIT_S ? wait : -1;
}

static void stay_away(int status, int seconds)
{
    fprintf(stderr, "retry: the server answered %d, waiting %d s\n", status, seconds);
    char id[33];
    trace_id_make(id);
    id[8] = '\0';
    double share = (double)strtoul(id, NULL, 16) / 4294967296.0;
    double wait = seconds * (1 + share / 10);
    struct timespec left = {.tv_sec = (time_t)wait};
    left.tv_nsec = (long)((wait - (double)left.tv_sec) * 1e9);
    while (nanosleep(&left, &left) != 0)
        ;
}

void exchange_run(struct exchange *exchange, const struct options *options, const struct call *call)
{
    if (*options->trace_id)
        memcpy(exchange->trace_id, options->trace_id, sizeof exchange->trace_id);
    else
        trace_id_make(exchange->trace_id);
    for (long tries_left = options->retries;; tries_left--) {
        struct buffer request;
        request_bytes(&request, options, call, exchange->trace_id);
        exchange->started_ms = monotonic_ms();
        if (attempt(exchange, options, call, &request) == ATTEMPT_NOT_ANSWERED)
            attempt(exchange, options, call, &request); /* the server had given up the kept connection */
        buffer_free(&request);
        int wait = wait_before_retry(&exchange->reply);
        if (wait < 0 || tries_left == 0)
            break;
        stay_away(exchange->reply.http.status, wait);
    }
    if (exchange->reply.http.is_head_complete && exchange->reply.http.trace_id[0])
        memcpy(exchange->trace_id, exchange->reply.http.trace_id, sizeof exchange->trace_id);
}
