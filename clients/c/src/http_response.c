#include "http_response.h"

#include <string.h>
#include <strings.h>

#include "trace_context.h"

enum state { STATUS_LINE, HEADER, BODY_LENGTH, BODY_TO_END, CHUNK_SIZE, CHUNK_EXTENSION, CHUNK_DATA, CHUNK_END, TRAILER };

void http_response_init(struct http_response *response, http_body_reader *on_body, void *context)
{
    *response = (struct http_response){
        .state = STATUS_LINE, .retry_after_s = -1, .keeps_connection = true, .on_body = on_body, .context = context};
    buffer_init(&response->line, HTTP_HEAD_LIMIT);
}

void http_response_free(struct http_response *response)
{
    buffer_free(&response->line);
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Parse decimal digits and nothing else; false when there is anything else or too much of it. */
static bool whole_number(const char *text, size_t length, uint64_t *value)
{
    if (length == 0 || length > 18)
        return false;
    *value = 0;
    for (size_t i = 0; i < length; i++) {
        if (!is_digit(text[i]))
            return false;
        *value = *value * 10 + (uint64_t)(text[i] - '0');
    }
    return true;
}

static bool take_status_line(struct http_response *response, const char *line, size_t length)
{
    if (length < 12 || memcmp(line, "HTTP/1.", 7) != 0 || !is_digit(line[7]) || line[8] != ' ')
        return false;
    if (!is_digit(line[9]) || !is_digit(line[10]) || !is_digit(line[11]) || (length > 12 && line[12] != ' '))
        return false;
    response->status = (line[9] - '0') * 100 + (line[10] - '0') * 10 + (line[11] - '0');
    response->keeps_connection = line[7] != '0';
    return response->status >= 100;
}

static bool equals(const char *text, size_t length, const char *word)
{
    return length == strlen(word) && strncasecmp(text, word, length) == 0;
}

static bool take_header(struct http_response *response, const char *line, size_t length)
{
    const char *colon = memchr(line, ':', length);
    if (colon == NULL || colon == line || line[0] == ' ' || line[0] == '\t' || colon[-1] == ' ' || colon[-1] == '\t')
        return false;
    size_t name_length = (size_t)(colon - line);
    const char *value = colon + 1, *end = line + length;
    while (value < end && (*value == ' ' || *value == '\t'))
        value++;
    while (end > value && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    size_t value_length = (size_t)(end - value);
    uint64_t number = 0;
    if (equals(line, name_length, "content-length")) {
        if (!whole_number(value, value_length, &number) || (response->has_length && response->remaining != number))
            return false;
        response->has_length = true;
        response->remaining = number;
    } else if (equals(line, name_length, "transfer-encoding")) {
        if (!equals(value, value_length, "chunked"))
            return false; /* nothing else was asked for */
        response->is_chunked = true;
    } else if (equals(line, name_length, "connection")) {
        if (equals(value, value_length, "close"))
            response->keeps_connection = false;
    } else if (equals(line, name_length, "content-type")) {
        size_t type = strlen("text/event-stream");
        response->is_event_stream = value_length >= type && strncasecmp(value, "text/event-stream", type) == 0 &&
                                    (value_length == type || value[type] == ';' || value[type] == ' ');
    } else if (equals(line, name_length, "retry-after")) {
        response->retry_after_s = whole_number(value, value_length, &number) && number < 1000000 ? (int)number : -1;
    } else if (equals(line, name_length, "x-trace-id") && trace_id_is_valid(value, value_length)) {
        memcpy(response->trace_id, value, value_length);
        response->trace_id[value_length] = '\0';
    }
    return true;
}

/* Decide how the body ends, or start over after a 1xx. */
static enum http_result end_of_head(struct http_response *response)
{
    if (response->status < 200) {
        if (response->status == 101)
            return HTTP_BROKEN; /* no upgrade was asked for */
        response->status = 0;
        response->state = STATUS_LINE;
        response->is_chunked = response->has_length = false;
        response->remaining = 0;
        return HTTP_MORE;
    }
    response->is_head_complete = true;
    if (response->status == 204 || response->status == 304)
        return HTTP_COMPLETE;
    if (response->is_chunked) {
        response->state = CHUNK_SIZE;
        response->size_digits = 0;
        response->line_bytes = 0;
        response->remaining = 0;
    } else if (response->has_length) {
        response->state = BODY_LENGTH;
        if (response->remaining == 0)
            return HTTP_COMPLETE;
    } else {
        response->state = BODY_TO_END;
        response->keeps_connection = false;
    }
    return HTTP_MORE;
}

static enum http_result take_line(struct http_response *response)
{
    const char *line = response->line.data;
    size_t length = response->line.length;
    if (length && line[length - 1] == '\r')
        length--;
    enum http_result result = HTTP_MORE;
    if (response->state == STATUS_LINE) {
        result = length && take_status_line(response, line, length) ? HTTP_MORE : HTTP_BROKEN;
        response->state = HEADER;
    } else if (response->state == TRAILER) {
        result = length == 0 ? HTTP_COMPLETE : HTTP_MORE;
    } else if (length == 0) {
        result = end_of_head(response);
    } else if (!take_header(response, line, length)) {
        result = HTTP_BROKEN;
    }
    buffer_clear(&response->line);
    return result;
}

static int hex_value(char c)
{
    if (is_digit(c))
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* One byte of a chunk's size line; its extension is skipped without being kept. */
static enum http_result take_size_byte(struct http_response *response, char c)
{
    if (++response->line_bytes > HTTP_HEAD_LIMIT)
        return HTTP_BROKEN;
    if (c == '\n') {
        if (response->size_digits == 0)
            return HTTP_BROKEN;
        response->state = response->remaining ? CHUNK_DATA : TRAILER;
        return HTTP_MORE;
    }
    if (response->state == CHUNK_EXTENSION)
        return HTTP_MORE;
    int digit = hex_value(c);
    if (digit >= 0) {
        if (++response->size_digits > 15)
            return HTTP_BROKEN;
        response->remaining = response->remaining * 16 + (uint64_t)digit;
        return HTTP_MORE;
    }
    if (c != '\r' && c != ';' && c != ' ' && c != '\t')
        return HTTP_BROKEN;
    response->state = CHUNK_EXTENSION;
    return response->size_digits ? HTTP_MORE : HTTP_BROKEN;
}

static enum http_result take_byte(struct http_response *response, char c)
{
    switch ((enum state)response->state) {
    case CHUNK_SIZE:
    case CHUNK_EXTENSION:
        return take_size_byte(response, c);
    case CHUNK_END:
        if (c == '\r' && response->line_bytes == 0) {
            response->line_bytes = 1;
            return HTTP_MORE;
        }
        response->state = CHUNK_SIZE;
        response->size_digits = 0;
        response->line_bytes = 0;
        return c == '\n' ? HTTP_MORE : HTTP_BROKEN;
    default:
        if (++response->head_bytes > HTTP_HEAD_LIMIT)
            return HTTP_BROKEN;
        if (c == '\n')
            return take_line(response);
        return buffer_append(&response->line, &c, 1) ? HTTP_MORE : HTTP_BROKEN;
    }
}

/* A run of the body, as long as what is there and what is left allow; *used says how long. */
static enum http_result take_body(struct http_response *response, const char *data, size_t length, size_t *used)
{
    size_t run = length;
    if (response->state != BODY_TO_END && response->remaining < run)
        run = (size_t)response->remaining;
    *used = run;
    if (response->state != BODY_TO_END)
        response->remaining -= run;
    if (!response->on_body(response->context, data, run))
        return HTTP_STOPPED;
    if (response->state == BODY_TO_END || response->remaining)
        return HTTP_MORE;
    if (response->state == BODY_LENGTH)
        return HTTP_COMPLETE;
    response->state = CHUNK_END;
    response->line_bytes = 0;
    return HTTP_MORE;
}

enum http_result http_response_feed(struct http_response *response, const char *data, size_t length)
{
    for (size_t at = 0; at < length;) {
        enum http_result result;
        size_t used = 1;
        if (response->state == BODY_LENGTH || response->state == BODY_TO_END || response->state == CHUNK_DATA)
            result = take_body(response, data + at, length - at, &used);
        else
            result = take_byte(response, data[at]);
        at += used;
        if (result == HTTP_COMPLETE && at < length)
            response->keeps_connection = false; /* bytes that nobody asked for */
        if (result != HTTP_MORE)
            return result;
    }
    return HTTP_MORE;
}

enum http_result http_response_end(const struct http_response *response)
{
    return response->state == BODY_TO_END ? HTTP_COMPLETE : HTTP_BROKEN;
}
