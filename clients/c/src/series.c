#include "series.h"

#include <stdlib.h>

#include "buffer.h"

void series_add(struct series *series, double value)
{
    if (series->count == series->capacity) {
        series->capacity = series->capacity ? 2 * series->capacity : 64;
        series->values = grow(series->values, series->capacity * sizeof *series->values);
    }
    series->values[series->count++] = value;
}

void series_free(struct series *series)
{
    free(series->values);
    *series = (struct series){0};
}

static int compare(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* The nearest rank: the smallest value that `percent` of the values don't exceed. */
static void print_percentile(const struct series *series, size_t percent, size_t least, FILE *out)
{
    if (series->count < least)
        fprintf(out, " p%zu=-", percent);
    else
        fprintf(out, " p%zu=%.3f", percent, series->values[(series->count * percent + 99) / 100 - 1]);
}

static void sort(struct series *series)
{
    if (series->count)
        qsort(series->values, series->count, sizeof *series->values, compare);
}

void series_median(struct series *series, char *text, size_t size)
{
    sort(series);
    if (series->count)
        snprintf(text, size, "%.3f", series->values[(series->count + 1) / 2 - 1]);
    else
        snprintf(text, size, "-");
}

void series_print(struct series *series, const char *name, FILE *out)
{
    sort(series);
    fprintf(out, "%s ms: n=%zu", name, series->count);
    print_percentile(series, 50, 1, out);
    print_percentile(series, 90, 10, out);
    print_percentile(series, 99, 100, out);
    if (series->count)
        fprintf(out, " max=%.3f\n", series->values[series->count - 1]);
    else
        fputs(" max=-\n", out);
}
