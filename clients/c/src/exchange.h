/* One request and its reply: written, read, tried again where CONTRACT.md says so. */
#ifndef PELLUCID_EXCHANGE_H
#define PELLUCID_EXCHANGE_H

#include <stdbool.h>
#include <stdio.h>

#include "connection.h"
#include "options.h"
#include "reply.h"

struct call {
    const char *path;     /* of a GET when `body` is empty, else of a POST */
    struct buffer body;
    bool wants_stream;
    bool keeps_connection; /* read to the end of the reply, so that another call can follow */
    FILE *out;             /* the text of a stream; NULL: nowhere */
};

struct exchange {
    struct connection connection; /* socket -1 before the first call */
    struct reply reply;           /* of the last call; exchange_free() frees it */
    char trace_id[33];            /* the one that was sent, then the server's */
    double started_ms;
    bool has_connected;           /* the last call made a connection of its own */
};

void exchange_init(struct exchange *exchange);
void exchange_free(struct exchange *exchange);

/* Make the call; the reply says how it went. */
void exchange_run(struct exchange *exchange, const struct options *options, const struct call *call);

/* The body of a chat request. */
void chat_body(struct buffer *body, const struct options *options, bool stream);

#endif
