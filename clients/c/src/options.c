#include "options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "failure.h"
#include "trace_context.h"

#define PROGRAMS "models, chat, chat-stream, probe, load"

static const char *variable(const char *name, const char *otherwise)
{
    const char *value = getenv(name);
    return value && *value ? value : otherwise;
}

static bool whole_number(const char *text, long low, long high, long *value)
{
    size_t length = strlen(text);
    if (length == 0 || length > 9 || strspn(text, "0123456789") != length)
        return false;
    *value = strtol(text, NULL, 10);
    return *value >= low && *value <= high;
}

static bool split_url(struct options *options, struct failure *failure)
{
    const char *url = options->url, *rest = url + strlen("http://");
    size_t length = strlen(url);
    if (strncmp(url, "http://", 7) != 0)
        goto wrong;
    length -= 7;
    if (length && rest[length - 1] == '/')
        length--;
    if (length >= 3 && memcmp(rest + length - 3, "/v1", 3) == 0)
        length -= 3;
    if (length == 0 || length >= sizeof options->authority - 6)
        goto wrong;
    const char *host = rest, *end = rest + length, *host_end;
    if (*host == '[') {
        host++;
        host_end = memchr(host, ']', (size_t)(end - host));
    } else {
        host_end = memchr(host, ':', (size_t)(end - host));
        if (host_end == NULL)
            host_end = end;
    }
    if (host_end == NULL || host_end == host || (size_t)(host_end - host) >= sizeof options->host)
        goto wrong;
    for (const char *c = host; c < host_end; c++)
        if ((unsigned char)*c <= ' ' || *c == 0x7f || strchr("/?#@%\\", *c))
            goto wrong;
    memcpy(options->host, host, (size_t)(host_end - host));
    options->host[host_end - host] = '\0';
    const char *colon = *rest == '[' ? host_end + 1 : host_end;
    char digits[8] = "80";
    if (colon < end) {
        size_t num_digits = (size_t)(end - colon) - 1;
        if (*colon != ':' || num_digits == 0 || num_digits > 5)
            goto wrong;
        memcpy(digits, colon + 1, num_digits);
        digits[num_digits] = '\0';
    }
    long port;
    if (!whole_number(digits, 1, 65535, &port))
        goto wrong;
    snprintf(options->port, sizeof options->port, "%ld", port);
    snprintf(options->authority, sizeof options->authority, *rest == '[' ? "[%s]:%s" : "%s:%s", options->host, options->port);
    return true;
wrong:
    fail(failure, OUTCOME_USAGE, "--url must be http://HOST[:PORT], got %s", url);
    return false;
}

/* `1,2,4`: rising, with nothing else between. */
static void read_ladder(struct options *options, const char *value, struct failure *failure)
{
    const char *at = value;
    options->num_rungs = 0;
    for (;;) {
        char number[12] = "";
        size_t length = strcspn(at, ",");
        if (length >= sizeof number || options->num_rungs == MOST_RUNGS)
            break;
        memcpy(number, at, length);
        long least = options->num_rungs ? options->rungs[options->num_rungs - 1] + 1 : 1;
        if (!whole_number(number, least, MOST_CONCURRENCY, &options->rungs[options->num_rungs]))
            break;
        options->num_rungs++;
        if (at[length] == '\0')
            return;
        at += length + 1;
    }
    fail(failure, OUTCOME_USAGE, "--ladder must be at most %d rising whole numbers from 1 to %d with commas between, got %s",
         MOST_RUNGS, MOST_CONCURRENCY, value);
}

/* One flag with its value. */
static void read_flag(struct options *options, const char *name, const char *value, struct failure *failure)
{
    struct { const char *name; const char **target; } texts[] = {
        {"--url", &options->url},       {"--dashboard", &options->dashboard}, {"--model", &options->model},
        {"--prompt", &options->prompt}, {"--trace-id", &options->trace_id},
    };
    struct { const char *name; long low, high; long *target; } numbers[] = {
        {"--max-tokens", 1, 1000000, &options->max_tokens},
        {"--requests", 1, 100000, &options->requests},
        {"--concurrency", 1, MOST_CONCURRENCY, &options->concurrency},
        {"--retries", 0, 10, &options->retries},
        {"--connect-timeout-ms", 1, 600000, &options->connect_timeout_ms},
        {"--idle-timeout-ms", 1, 3600000, &options->idle_timeout_ms},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (strcmp(name, texts[i].name) == 0) {
            if (value)
                *texts[i].target = value;
            else
                fail(failure, OUTCOME_USAGE, "%s needs a value", name);
            return;
        }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (strcmp(name, numbers[i].name) == 0) {
            if (value == NULL)
                fail(failure, OUTCOME_USAGE, "%s needs a value", name);
            else if (!whole_number(value, numbers[i].low, numbers[i].high, numbers[i].target))
                fail(failure, OUTCOME_USAGE, "%s must be a whole number from %ld to %ld, got %s", name, numbers[i].low,
                     numbers[i].high, value);
            return;
        }
    if (strcmp(name, "--ladder") != 0)
        fail(failure, OUTCOME_USAGE, "unknown flag %s", name);
    else if (value == NULL)
        fail(failure, OUTCOME_USAGE, "%s needs a value", name);
    else
        read_ladder(options, value, failure);
}

static bool is_program(const char *name)
{
    static const char *const names[] = {"models", "chat", "chat-stream", "probe", "load"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

bool options_read(struct options *options, int count, char **arguments)
{
    *options = (struct options){
        .program = "",
        .url = variable("PELLUCID_URL", "http://127.0.0.1:8100"),
        .dashboard = variable("PELLUCID_DASHBOARD", "http://127.0.0.1:3100"),
        .model = variable("PELLUCID_MODEL", ""),
        .api_key = variable("PELLUCID_API_KEY", ""),
        .prompt = "Name the three primary colors.",
        .trace_id = "",
        .max_tokens = 64,
        .requests = 10,
        .concurrency = 4,
        .retries = 3,
        .connect_timeout_ms = 5000,
        .idle_timeout_ms = 60000,
    };
    struct failure failure = {0};
    for (int i = 1; i < count; i++)
        if (strcmp(arguments[i], "--help") == 0) {
            options->wants_help = true;
            return true;
        }
    if (count < 2)
        fail(&failure, OUTCOME_USAGE, "no program given; one of " PROGRAMS);
    else if (!is_program(arguments[1]))
        fail(&failure, OUTCOME_USAGE, "unknown program %s; one of " PROGRAMS, arguments[1]);
    else
        options->program = arguments[1];
    for (int i = 2; i < count && failure.outcome == OUTCOME_OK; i += 2)
        read_flag(options, arguments[i], i + 1 < count ? arguments[i + 1] : NULL, &failure);
    if (failure.outcome == OUTCOME_OK && *options->trace_id &&
        !trace_id_is_valid(options->trace_id, strlen(options->trace_id)))
        fail(&failure, OUTCOME_USAGE, "--trace-id must be 32 lower-case hexadecimal digits, not all 0, got %s",
             options->trace_id);
    if (failure.outcome == OUTCOME_OK)
        split_url(options, &failure);
    if (failure.outcome != OUTCOME_OK)
        failure_print(&failure);
    return failure.outcome == OUTCOME_OK;
}
