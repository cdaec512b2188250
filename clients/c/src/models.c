/* `models`: the names that the server answers to. */
#include "exchange.h"
#include "programs.h"

static void print_models(struct reply *reply)
{
    struct json json;
    const struct json_value *list = NULL;
    if (json_parse(&json, reply->body.data, reply->body.length) &&
        utf8_is_valid(reply->body.data, reply->body.length))
        list = json_member(&json, json_root(&json), "data");
    if (!json_is(list, JSON_ARRAY))
        fail(&reply->failure, OUTCOME_BROKEN, "the answer can't be read: JSON");
    else
        for (const struct json_value *entry = json_first(&json, list); entry; entry = json_next(&json, entry)) {
            const struct json_value *id = json_member(&json, entry, "id");
            if (json_is(id, JSON_STRING))
                printf("model: %.*s\n", (int)id->text_length, json_text(&json, id));
        }
    json_free(&json);
}

int program_models(const struct options *options)
{
    struct exchange exchange;
    struct call call = {.path = "/v1/models"};
    exchange_init(&exchange);
    exchange_run(&exchange, options, &call);
    if (exchange.reply.failure.outcome == OUTCOME_OK)
        print_models(&exchange.reply);
    enum outcome outcome = exchange.reply.failure.outcome;
    if (outcome != OUTCOME_OK)
        failure_print(&exchange.reply.failure);
    exchange_free(&exchange);
    return outcome;
}
