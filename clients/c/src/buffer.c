#include "buffer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *grow(void *memory, size_t size)
{
    void *grown = realloc(memory, size ? size : 1);
    if (grown == NULL) {
        fputs("error: out of memory\n", stderr);
        exit(4);
    }
    return grown;
}

void buffer_init(struct buffer *buffer, size_t limit)
{
    *buffer = (struct buffer){.limit = limit};
}

void buffer_free(struct buffer *buffer)
{
    free(buffer->data);
    *buffer = (struct buffer){.limit = buffer->limit};
}

void buffer_clear(struct buffer *buffer)
{
    buffer->length = 0;
}

bool buffer_append(struct buffer *buffer, const char *data, size_t length)
{
    if (length > buffer->limit - buffer->length)
        return false;
    if (length == 0)
        return true;
    if (length > buffer->capacity - buffer->length) {
        size_t capacity = buffer->capacity ? buffer->capacity : 256;
        while (capacity - buffer->length < length)
            capacity *= 2;
        buffer->data = grow(buffer->data, capacity);
        buffer->capacity = capacity;
    }
    memcpy(buffer->data + buffer->length, data, length);
    buffer->length += length;
    return true;
}

bool buffer_text(struct buffer *buffer, const char *text)
{
    return buffer_append(buffer, text, strlen(text));
}
