/* An HTTP/1.1 response, parsed as its bytes come, cut anywhere. */
#ifndef PELLUCID_HTTP_RESPONSE_H
#define PELLUCID_HTTP_RESPONSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buffer.h"

enum {
    HTTP_HEAD_LIMIT = 16384, /* bytes of status line and headers, of one chunk's size line, of the trailers */
};

enum http_result {
    HTTP_MORE,     /* everything was taken, the response goes on */
    HTTP_COMPLETE, /* its last byte was among those given */
    HTTP_BROKEN,   /* not HTTP, or over a limit */
    HTTP_STOPPED,  /* the body's reader wants no more */
};

/* Takes a piece of the body; false stops. */
typedef bool http_body_reader(void *context, const char *data, size_t length);

struct http_response {
    int status;                /* 0 until the head is there */
    bool is_head_complete;
    bool keeps_connection;     /* once complete: another request may follow */
    bool is_event_stream;      /* content-type */
    int retry_after_s;         /* -1: absent, or no number of seconds */
    char trace_id[33];         /* of x-trace-id; "" unless well-formed */

    int state;
    bool is_chunked;
    bool has_length;
    uint64_t remaining;        /* of the body or of the chunk */
    int size_digits;
    size_t line_bytes;         /* of a chunk's size line */
    size_t head_bytes;
    struct buffer line;
    http_body_reader *on_body;
    void *context;
};

void http_response_init(struct http_response *response, http_body_reader *on_body, void *context);
void http_response_free(struct http_response *response);

/* Take the next bytes. After anything but HTTP_MORE the response takes no more. */
enum http_result http_response_feed(struct http_response *response, const char *data, size_t length);

/* The connection ended: HTTP_COMPLETE if that is how this body ends, else HTTP_BROKEN. */
enum http_result http_response_end(const struct http_response *response);

#endif
