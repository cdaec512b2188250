/* What went wrong, in the words and the exit codes of CONTRACT.md. */
#ifndef PELLUCID_FAILURE_H
#define PELLUCID_FAILURE_H

#include <stddef.h>

enum outcome {
    OUTCOME_OK = 0,
    OUTCOME_REFUSED = 1,       /* the server said no, or failed */
    OUTCOME_USAGE = 2,
    OUTCOME_NO_CONNECTION = 3,
    OUTCOME_BROKEN = 4,        /* the connection or the protocol */
    OUTCOME_SILENT = 5,
};

struct failure {
    enum outcome outcome;
    char text[1024];
};

/* Note a failure; the first one stays. Control characters become spaces. */
__attribute__((format(printf, 3, 4))) void fail(struct failure *failure, enum outcome outcome, const char *form, ...);

/* `<prefix>: <message>`, the message cut to what fits without breaking a character. */
void fail_with_message(struct failure *failure, const char *prefix, const char *message, size_t length);

void failure_print(const struct failure *failure);

#endif
