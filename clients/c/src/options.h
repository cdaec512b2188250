/* The command line and the environment, checked. */
#ifndef PELLUCID_OPTIONS_H
#define PELLUCID_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

enum { MOST_CONCURRENCY = 256, MOST_RUNGS = 16 };

struct options {
    const char *program;
    const char *url, *dashboard, *model, *api_key, *prompt, *trace_id; /* "" when absent */
    long max_tokens, requests, concurrency, retries, connect_timeout_ms, idle_timeout_ms;
    long rungs[MOST_RUNGS]; /* of the ladder */
    size_t num_rungs;       /* 0: no ladder */
    bool wants_help;

    char host[256];      /* of url, without brackets */
    char port[6];
    char authority[272]; /* HOST:PORT as it is written in headers and messages */
};

/* Fill in; on bad usage print the error line and return false. */
bool options_read(struct options *options, int count, char **arguments);

#endif
