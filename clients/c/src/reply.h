/* A whole reply, fed with the bytes of the connection: HTTP, then events or a plain body. */
#ifndef PELLUCID_REPLY_H
#define PELLUCID_REPLY_H

#include <stdbool.h>
#include <stddef.h>

#include "answer.h"
#include "buffer.h"
#include "http_response.h"
#include "sse.h"

enum { BODY_LIMIT = 16 << 20 };

struct reply {
    struct http_response http;
    struct sse sse;
    struct answer answer;
    struct buffer body;      /* of anything that is no stream */
    bool wants_stream;
    bool is_over;            /* nothing more is needed */
    bool is_http_complete;   /* the connection may be used again */
    struct failure failure;
};

/* `out` takes the text of a stream as it comes (NULL: nobody), `now_ms` stamps it (NULL: nobody asks). */
void reply_init(struct reply *reply, bool wants_stream, FILE *out, double (*now_ms)(void));
void reply_free(struct reply *reply);

/* Take bytes as they come; sets is_over when enough is known. */
void reply_feed(struct reply *reply, const char *data, size_t length);

/* No more bytes: because it is over, or because the connection ended. Fills in `failure`. */
void reply_end(struct reply *reply);

#endif
