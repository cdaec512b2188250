#include "answer.h"

#include <stdlib.h>
#include <string.h>

void answer_init(struct answer *answer, FILE *out, double (*now_ms)(void))
{
    *answer = (struct answer){.out = out, .now_ms = now_ms};
}

void answer_free(struct answer *answer)
{
    free(answer->text_times_ms);
}

void usage_read(struct usage *usage, const struct json *json, const struct json_value *value)
{
    if (!json_is(value, JSON_OBJECT))
        return;
    usage->is_known = true;
    usage->prompt = json_count(json_member(json, value, "prompt_tokens"));
    usage->completion = json_count(json_member(json, value, "completion_tokens"));
    usage->cached = json_count(json_member(json, json_member(json, value, "prompt_tokens_details"), "cached_tokens"));
}

void copy_name(char *copy, size_t size, const struct json *json, const struct json_value *value)
{
    const char *text = json_text(json, value);
    size_t length = value->text_length < size ? value->text_length : size - 1;
    for (size_t i = 0; i < length; i++)
        copy[i] = (unsigned char)text[i] < 0x20 || text[i] == 0x7f ? ' ' : text[i];
    copy[length] = '\0';
}

static void note_text_time(struct answer *answer)
{
    if (answer->now_ms == NULL)
        return;
    if (answer->num_texts == answer->capacity) {
        answer->capacity = answer->capacity ? 2 * answer->capacity : 64;
        answer->text_times_ms = grow(answer->text_times_ms, answer->capacity * sizeof *answer->text_times_ms);
    }
    answer->text_times_ms[answer->num_texts++] = answer->now_ms();
}

static void take_choice(struct answer *answer, const struct json *json, const struct json_value *choice)
{
    const struct json_value *index = json_member(json, choice, "index");
    if (index && !(json_is(index, JSON_NUMBER) && index->number == 0))
        return;
    const struct json_value *text = json_member(json, json_member(json, choice, "delta"), "content");
    if (json_is(text, JSON_STRING) && text->text_length) {
        note_text_time(answer);
        answer->has_text = true;
        if (answer->out) {
            fwrite(json_text(json, text), 1, text->text_length, answer->out);
            fflush(answer->out);
        }
    }
    const struct json_value *reason = json_member(json, choice, "finish_reason");
    if (json_is(reason, JSON_STRING) && reason->text_length) {
        copy_name(answer->finish, sizeof answer->finish, json, reason);
        answer->finished_ms = answer->now_ms ? answer->now_ms() : 0;
    }
}

static void take_error(struct answer *answer, const struct json *json, const struct json_value *error)
{
    const struct json_value *message = json_member(json, error, "message");
    if (json_is(message, JSON_STRING))
        fail_with_message(&answer->failure, "the server failed", json_text(json, message), message->text_length);
    else
        fail(&answer->failure, OUTCOME_REFUSED, "the server failed: unknown error");
}

static void take_chunk(struct answer *answer, const struct json *json)
{
    const struct json_value *root = json_root(json), *error = json_member(json, root, "error");
    if (error && error->type != JSON_NULL) {
        take_error(answer, json, error);
        return;
    }
    const struct json_value *choices = json_member(json, root, "choices");
    if (json_is(choices, JSON_ARRAY))
        for (const struct json_value *choice = json_first(json, choices); choice; choice = json_next(json, choice))
            take_choice(answer, json, choice);
    usage_read(&answer->usage, json, json_member(json, root, "usage"));
}

bool answer_event(struct answer *answer, const char *data, size_t length)
{
    if (!utf8_is_valid(data, length)) {
        fail(&answer->failure, OUTCOME_BROKEN, "the answer can't be read: UTF-8");
        return false;
    }
    if (length == 6 && memcmp(data, "[DONE]", 6) == 0) {
        answer->is_done = true;
        return false;
    }
    struct json json;
    if (json_parse(&json, data, length) && json_is(json_root(&json), JSON_OBJECT))
        take_chunk(answer, &json);
    else
        fail(&answer->failure, OUTCOME_BROKEN, "the answer can't be read: JSON");
    json_free(&json);
    return answer->failure.outcome == OUTCOME_OK;
}

void answer_end(struct answer *answer)
{
    if (!answer->is_done)
        fail(&answer->failure, OUTCOME_BROKEN, "the stream ended before [DONE]");
    else if (!answer->finish[0])
        fail(&answer->failure, OUTCOME_BROKEN, "the stream ended without a finish reason");
}
