/* What many streams add up to. A failed stream is counted as one and goes into nothing else. */
#ifndef PELLUCID_MEASUREMENT_H
#define PELLUCID_MEASUREMENT_H

#include "exchange.h"
#include "series.h"

struct measurement {
    size_t num_ok, num_failed;
    uint64_t num_tokens;
    struct series connect, ttft, itl, total; /* ms */
};

/* Take in what one call came to; prints the line of a failed one. */
void measurement_add(struct measurement *measurement, const struct exchange *exchange);
void measurement_print_counts(const struct measurement *measurement);
void measurement_print_times(struct measurement *measurement);
void measurement_free(struct measurement *measurement);

#endif
