#include "sse.h"

#include <string.h>

void sse_init(struct sse *sse, sse_event_reader *on_event, void *context)
{
    *sse = (struct sse){.on_event = on_event, .context = context};
    buffer_init(&sse->line, SSE_EVENT_LIMIT + 6); /* `data: ` doesn't count */
    buffer_init(&sse->data, SSE_EVENT_LIMIT + 1); /* the last LF doesn't count */
}

void sse_free(struct sse *sse)
{
    buffer_free(&sse->line);
    buffer_free(&sse->data);
}

static enum sse_result end_of_event(struct sse *sse)
{
    if (sse->data.length == 0)
        return SSE_MORE;
    bool goes_on = sse->on_event(sse->context, sse->data.data, sse->data.length - 1);
    buffer_clear(&sse->data);
    return goes_on ? SSE_MORE : SSE_STOPPED;
}

static enum sse_result end_of_line(struct sse *sse)
{
    const char *line = sse->line.data;
    size_t length = sse->line.length;
    if (!sse->has_begun && length >= 3 && memcmp(line, "\xef\xbb\xbf", 3) == 0) {
        line += 3;
        length -= 3;
    }
    sse->has_begun = true;
    enum sse_result result = SSE_MORE;
    if (length == 0) {
        result = end_of_event(sse);
    } else if (length == 4 && memcmp(line, "data", 4) == 0) {
        result = buffer_append(&sse->data, "\n", 1) ? SSE_MORE : SSE_TOO_LONG;
    } else if (length > 4 && memcmp(line, "data:", 5) == 0) {
        size_t skip = length > 5 && line[5] == ' ' ? 6 : 5;
        if (!buffer_append(&sse->data, line + skip, length - skip) || !buffer_append(&sse->data, "\n", 1))
            result = SSE_TOO_LONG;
    }
    buffer_clear(&sse->line);
    return result;
}

enum sse_result sse_feed(struct sse *sse, const char *bytes, size_t length)
{
    for (size_t at = 0; at < length;) {
        if (sse->skips_lf) {
            sse->skips_lf = false;
            if (bytes[at] == '\n') {
                at++;
                continue;
            }
        }
        size_t end = at;
        while (end < length && bytes[end] != '\n' && bytes[end] != '\r')
            end++;
        if (!buffer_append(&sse->line, bytes + at, end - at))
            return SSE_TOO_LONG;
        if (end == length)
            return SSE_MORE;
        sse->skips_lf = bytes[end] == '\r';
        at = end + 1;
        enum sse_result result = end_of_line(sse);
        if (result != SSE_MORE)
            return result;
    }
    return SSE_MORE;
}
