#include "measurement.h"

#include <inttypes.h>

void measurement_add(struct measurement *measurement, const struct exchange *exchange)
{
    const struct reply *reply = &exchange->reply;
    const struct answer *answer = &reply->answer;
    if (reply->failure.outcome != OUTCOME_OK) {
        measurement->num_failed++;
        failure_print(&reply->failure);
        return;
    }
    measurement->num_ok++;
    measurement->num_tokens += answer->usage.completion;
    if (exchange->has_connected)
        series_add(&measurement->connect, exchange->connection.connect_ms);
    if (answer->num_texts)
        series_add(&measurement->ttft, answer->text_times_ms[0] - exchange->started_ms);
    for (size_t i = 1; i < answer->num_texts; i++)
        series_add(&measurement->itl, answer->text_times_ms[i] - answer->text_times_ms[i - 1]);
    series_add(&measurement->total, answer->finished_ms - exchange->started_ms);
}

void measurement_print_counts(const struct measurement *measurement)
{
    printf("requests: %zu ok, %zu failed\n", measurement->num_ok, measurement->num_failed);
    printf("tokens: %" PRIu64 "\n", measurement->num_tokens);
}

void measurement_print_times(struct measurement *measurement)
{
    series_print(&measurement->ttft, "ttft", stdout);
    series_print(&measurement->itl, "itl", stdout);
    series_print(&measurement->total, "total", stdout);
}

void measurement_free(struct measurement *measurement)
{
    series_free(&measurement->connect);
    series_free(&measurement->ttft);
    series_free(&measurement->itl);
    series_free(&measurement->total);
}
