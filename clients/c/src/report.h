/* How `chat` and `chat-stream` end, for the programs and for the tests of recorded streams. */
#ifndef PELLUCID_REPORT_H
#define PELLUCID_REPORT_H

#include <stdio.h>

#include "reply.h"

/* The lines behind a stream's text. */
void report_stream(const struct reply *reply, const char *trace_id, const char *dashboard, FILE *out);

void report_finish(const char *finish, const struct usage *usage, FILE *out);
void report_trace(const char *trace_id, const char *dashboard, FILE *out);

#endif
