/* Server-sent events from bytes that are cut anywhere (WHATWG rules). */
#ifndef PELLUCID_SSE_H
#define PELLUCID_SSE_H

#include <stdbool.h>
#include <stddef.h>

#include "buffer.h"

enum { SSE_EVENT_LIMIT = 1048576 };

enum sse_result {
    SSE_MORE,
    SSE_TOO_LONG, /* an event over the limit */
    SSE_STOPPED,  /* the reader of events wants no more */
};

/* Takes the data of one event; false stops. */
typedef bool sse_event_reader(void *context, const char *data, size_t length);

struct sse {
    struct buffer line; /* the unfinished one */
    struct buffer data; /* each line of the event so far, with an LF behind it */
    bool skips_lf;      /* the last byte was a CR */
    bool has_begun;     /* the first line is over: no byte order mark any more */
    sse_event_reader *on_event;
    void *context;
};

void sse_init(struct sse *sse, sse_event_reader *on_event, void *context);
void sse_free(struct sse *sse);
enum sse_result sse_feed(struct sse *sse, const char *bytes, size_t length);

#endif
