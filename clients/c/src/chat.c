/* `chat` and `chat-stream`: one answer, whole or as it is made. */
#include "exchange.h"
#include "programs.h"
#include "report.h"

static void print_answer(struct reply *reply)
{
    struct json json;
    struct usage usage = {0};
    char finish[64] = "";
    bool is_read = json_parse(&json, reply->body.data, reply->body.length) &&
                   utf8_is_valid(reply->body.data, reply->body.length);
    const struct json_value *root = is_read ? json_root(&json) : NULL;
    const struct json_value *choices = json_member(&json, root, "choices");
    const struct json_value *choice = json_is(choices, JSON_ARRAY) ? json_first(&json, choices) : NULL;
    const struct json_value *text = json_member(&json, json_member(&json, choice, "message"), "content");
    const struct json_value *reason = json_member(&json, choice, "finish_reason");
    if (json_is(text, JSON_STRING) && json_is(reason, JSON_STRING)) {
        copy_name(finish, sizeof finish, &json, reason);
        usage_read(&usage, &json, json_member(&json, root, "usage"));
        fwrite(json_text(&json, text), 1, text->text_length, stdout);
        putchar('\n');
        report_finish(finish, &usage, stdout);
    } else {
        fail(&reply->failure, OUTCOME_BROKEN, "the answer can't be read: JSON");
    }
    json_free(&json);
}

int program_chat(const struct options *options)
{
    struct exchange exchange;
    struct call call = {.path = "/v1/chat/completions"};
    exchange_init(&exchange);
    chat_body(&call.body, options, false);
    exchange_run(&exchange, options, &call);
    if (exchange.reply.failure.outcome == OUTCOME_OK)
        print_answer(&exchange.reply);
    enum outcome outcome = exchange.reply.failure.outcome;
    if (outcome != OUTCOME_NO_CONNECTION)
        report_trace(exchange.trace_id, options->dashboard, stdout);
    if (outcome != OUTCOME_OK)
        failure_print(&exchange.reply.failure);
    exchange_free(&exchange);
    buffer_free(&call.body);
    return outcome;
}

int program_chat_stream(const struct options *options)
{
    struct exchange exchange;
    struct call call = {.path = "/v1/chat/completions", .wants_stream = true, .out = stdout};
    exchange_init(&exchange);
    chat_body(&call.body, options, true);
    exchange_run(&exchange, options, &call);
    report_stream(&exchange.reply, exchange.trace_id, options->dashboard, stdout);
    enum outcome outcome = exchange.reply.failure.outcome;
    if (outcome != OUTCOME_OK)
        failure_print(&exchange.reply.failure);
    exchange_free(&exchange);
    buffer_free(&call.body);
    return outcome;
}
