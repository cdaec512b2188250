/* W3C trace context: ids, and the header that carries them. */
#ifndef PELLUCID_TRACE_CONTEXT_H
#define PELLUCID_TRACE_CONTEXT_H

#include <stdbool.h>
#include <stddef.h>

/* 32 lower-case hexadecimal digits, not all 0. */
bool trace_id_is_valid(const char *text, size_t length);

/* Write 32 random digits and a terminator. */
void trace_id_make(char id[33]);

/* Write `00-<id>-<random span id>-01` and a terminator. */
void traceparent_make(char header[56], const char *trace_id);

#endif
