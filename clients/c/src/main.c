/* Which program to run. */
#include <stdio.h>
#include <string.h>

#include "failure.h"
#include "options.h"
#include "programs.h"

static const char help[] =
    "usage: pellucid-client PROGRAM [FLAGS]\n"
    "\n"
    "programs: models, chat, chat-stream, probe, load\n"
    "\n"
    "  --url URL                  http://HOST[:PORT] of the server\n"
    "  --dashboard URL            for the link to the trace\n"
    "  --model NAME               the server's default when absent\n"
    "  --prompt TEXT              what to ask\n"
    "  --max-tokens N             of each answer\n"
    "  --requests N               of probe and load\n"
    "  --concurrency N            workers of load\n"
    "  --ladder N,N,...           load at each of these concurrencies\n"
    "  --retries N                after 429 and 503\n"
    "  --connect-timeout-ms N     for each address\n"
    "  --idle-timeout-ms N        since the last byte\n"
    "  --trace-id HEX             32 digits, instead of a random one\n"
    "\n"
    "environment: PELLUCID_URL, PELLUCID_DASHBOARD, PELLUCID_MODEL, PELLUCID_API_KEY\n"
    ;

int main(int count, char **arguments)
{
    static const struct {
        const char *name;
        int (*run)(const struct options *options);
    } programs[] = {
        {"models", program_models}, {"chat", program_chat}, {"chat-stream", program_chat_stream},
        {"probe", program_probe},   {"load", program_load},
    };
    struct options options;
    if (!options_read(&options, count, arguments))
        return OUTCOME_USAGE;
    if (options.wants_help) {
        fputs(help, stdout);
        return OUTCOME_OK;
    }
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
        if (strcmp(options.program, programs[i].name) == 0)
            return programs[i].run(&options);
    return OUTCOME_USAGE;
}
