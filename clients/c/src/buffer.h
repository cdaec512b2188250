/* A growing run of bytes with a bound. Owner: whoever declares it; buffer_free() gives the memory back. */
#ifndef PELLUCID_BUFFER_H
#define PELLUCID_BUFFER_H

#include <stdbool.h>
#include <stddef.h>

struct buffer {
    char *data; /* NULL while empty and never used; not terminated */
    size_t length;
    size_t capacity;
    size_t limit; /* the most it may hold */
};

void buffer_init(struct buffer *buffer, size_t limit);
void buffer_free(struct buffer *buffer);
void buffer_clear(struct buffer *buffer);

/* Append; false, and nothing appended, when it would pass the limit. Ends the process when memory is out. */
bool buffer_append(struct buffer *buffer, const char *data, size_t length);
bool buffer_text(struct buffer *buffer, const char *text);

/* realloc or malloc that ends the process when memory is out. */
void *grow(void *memory, size_t size);

#endif
