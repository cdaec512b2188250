#include "trace_context.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

bool trace_id_is_valid(const char *text, size_t length)
{
    bool is_zero = true;
    if (length != 32)
        return false;
    for (size_t i = 0; i < length; i++) {
        if (!((text[i] >= '0' && text[i] <= '9') || (text[i] >= 'a' && text[i] <= 'f')))
            return false;
        is_zero = is_zero && text[i] == '0';
    }
    return !is_zero;
}

/* Write 2 * num_bytes random digits that are not all 0, and a terminator. */
static void random_hex(char *text, size_t num_bytes)
{
    unsigned char bytes[16];
    if (getentropy(bytes, num_bytes) != 0) {
        perror("error: getentropy");
        exit(4);
    }
    bytes[0] |= 1;
    for (size_t i = 0; i < num_bytes; i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
}

void trace_id_make(char id[33])
{
    random_hex(id, 16);
}

void traceparent_make(char header[56], const char *trace_id)
{
    char span_id[17];
    random_hex(span_id, 8);
    snprintf(header, 56, "00-%.32s-%s-01", trace_id, span_id);
}
