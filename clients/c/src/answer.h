/* What the events of one chat stream add up to. */
#ifndef PELLUCID_ANSWER_H
#define PELLUCID_ANSWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "failure.h"
#include "json.h"

struct usage {
    bool is_known;
    uint64_t prompt, cached, completion;
};

struct answer {
    FILE *out;             /* where text goes as it comes; NULL: nowhere */
    double (*now_ms)(void); /* NULL: times are not kept */
    bool has_text;
    bool is_done;          /* [DONE] came */
    char finish[64];       /* "" until there is a reason */
    struct usage usage;
    struct failure failure;
    double *text_times_ms; /* of each event with text */
    size_t num_texts, capacity;
    double finished_ms;
};

void answer_init(struct answer *answer, FILE *out, double (*now_ms)(void));
void answer_free(struct answer *answer);

/* Take one event; false when nothing more is wanted: [DONE] or a failure. */
bool answer_event(struct answer *answer, const char *data, size_t length);

/* The stream is over, whatever ended it: note what is missing. */
void answer_end(struct answer *answer);

void usage_read(struct usage *usage, const struct json *json, const struct json_value *value);

/* Copy a finish reason or name, control characters as spaces. */
void copy_name(char *copy, size_t size, const struct json *json, const struct json_value *value);

#endif
