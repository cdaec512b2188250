/* Single values and the line that sums them up. */
#ifndef PELLUCID_SERIES_H
#define PELLUCID_SERIES_H

#include <stddef.h>
#include <stdio.h>

struct series {
    double *values;
    size_t count, capacity;
};

void series_add(struct series *series, double value);
void series_free(struct series *series);

/* `<name> ms: n=... p50=... p90=... p99=... max=...`; sorts the values. */
void series_print(struct series *series, const char *name, FILE *out);

/* The median as text, "-" when there are no values; sorts them. */
void series_median(struct series *series, char *text, size_t size);

#endif
