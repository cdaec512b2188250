/* `probe`: what the wire shows, one stream after the other, each on a connection of its own. */
#include "measurement.h"
#include "programs.h"

int program_probe(const struct options *options)
{
    struct measurement measurement = {0};
    struct exchange exchange;
    struct call call = {.path = "/v1/chat/completions", .wants_stream = true};
    exchange_init(&exchange);
    chat_body(&call.body, options, true);
    for (long i = 0; i < options->requests; i++) {
        exchange_run(&exchange, options, &call);
        measurement_add(&measurement, &exchange);
    }
    measurement_print_counts(&measurement);
    series_print(&measurement.connect, "connect", stdout);
    measurement_print_times(&measurement);
    int code = measurement.num_failed ? OUTCOME_REFUSED : OUTCOME_OK;
    measurement_free(&measurement);
    exchange_free(&exchange);
    buffer_free(&call.body);
    return code;
}
