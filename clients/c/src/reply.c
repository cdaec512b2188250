#include "reply.h"

static bool take_event(void *context, const char *data, size_t length)
{
    struct reply *reply = context;
    return answer_event(&reply->answer, data, length);
}

static bool is_stream(const struct reply *reply)
{
    return reply->wants_stream && reply->http.status == 200;
}

static bool take_body(void *context, const char *data, size_t length)
{
    struct reply *reply = context;
    if (!is_stream(reply)) {
        if (buffer_append(&reply->body, data, length))
            return true;
        fail(&reply->failure, OUTCOME_BROKEN, "the answer can't be read: HTTP");
        return false;
    }
    if (reply->answer.is_done)
        return true; /* only the end of the body is of interest now */
    if (!reply->http.is_event_stream) {
        fail(&reply->failure, OUTCOME_BROKEN, "the answer can't be read: not an event stream");
        return false;
    }
    enum sse_result result = sse_feed(&reply->sse, data, length);
    if (result == SSE_TOO_LONG)
        fail(&reply->answer.failure, OUTCOME_BROKEN, "the answer can't be read: an event is longer than 1048576 bytes");
    return result == SSE_MORE || reply->answer.is_done;
}

void reply_init(struct reply *reply, bool wants_stream, FILE *out, double (*now_ms)(void))
{
    *reply = (struct reply){.wants_stream = wants_stream};
    http_response_init(&reply->http, take_body, reply);
    sse_init(&reply->sse, take_event, reply);
    answer_init(&reply->answer, out, now_ms);
    buffer_init(&reply->body, BODY_LIMIT);
}

void reply_free(struct reply *reply)
{
    http_response_free(&reply->http);
    sse_free(&reply->sse);
    answer_free(&reply->answer);
    buffer_free(&reply->body);
}

void reply_feed(struct reply *reply, const char *data, size_t length)
{
    enum http_result result = http_response_feed(&reply->http, data, length);
    reply->is_http_complete = result == HTTP_COMPLETE;
    reply->is_over = result != HTTP_MORE || reply->answer.is_done;
    if (result == HTTP_BROKEN && !reply->answer.is_done)
        fail(&reply->failure, OUTCOME_BROKEN, "the answer can't be read: HTTP");
}

/* What the body of a refusal says. */
static void read_refusal(struct reply *reply)
{
    char prefix[64];
    snprintf(prefix, sizeof prefix, "the server answered %d", reply->http.status);
    struct json json;
    bool is_json = json_parse(&json, reply->body.data, reply->body.length);
    if (is_json && utf8_is_valid(reply->body.data, reply->body.length)) {
        const struct json_value *error = json_member(&json, json_root(&json), "error");
        const struct json_value *message = json_member(&json, error, "message");
        if (json_is(message, JSON_STRING))
            fail_with_message(&reply->failure, prefix, json_text(&json, message), message->text_length);
    }
    json_free(&json);
    fail(&reply->failure, OUTCOME_REFUSED, "%s", prefix);
}

void reply_end(struct reply *reply)
{
    bool is_whole = reply->is_http_complete || http_response_end(&reply->http) == HTTP_COMPLETE;
    if (reply->failure.outcome != OUTCOME_OK)
        return;
    if (reply->http.is_head_complete && is_stream(reply)) {
        if (!reply->http.is_event_stream)
            fail(&reply->failure, OUTCOME_BROKEN, "the answer can't be read: not an event stream");
        answer_end(&reply->answer);
        if (reply->answer.failure.outcome != OUTCOME_OK && reply->failure.outcome == OUTCOME_OK)
            reply->failure = reply->answer.failure;
    } else if (!reply->http.is_head_complete || !is_whole) {
        fail(&reply->failure, OUTCOME_BROKEN, "the connection ended before the answer was complete");
    } else if (reply->http.status != 200) {
        read_refusal(reply);
    }
}
