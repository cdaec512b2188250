/* `load`: what batching gives, at one concurrency or up a ladder of them. */
#include "programs.h"
#include "workers.h"

static const double knee_share = 0.9; /* of the best tokens/s */

static int load_once(const struct options *options)
{
    struct measurement measurement = {0};
    double seconds = workers_run(&measurement, options, options->requests, options->concurrency);
    printf("concurrency: %ld\n", options->concurrency);
    measurement_print_counts(&measurement);
    printf("tokens/s: %.1f\n", (double)measurement.num_tokens / seconds);
    measurement_print_times(&measurement);
    int code = measurement.num_failed ? OUTCOME_REFUSED : OUTCOME_OK;
    measurement_free(&measurement);
    return code;
}

/* One stream that counts for nothing: the server has the prompt in its cache at every rung. */
static void warm_up(const struct options *options)
{
    struct exchange exchange;
    struct call call = {.path = "/v1/chat/completions", .wants_stream = true};
    exchange_init(&exchange);
    chat_body(&call.body, options, true);
    exchange_run(&exchange, options, &call);
    exchange_free(&exchange);
    buffer_free(&call.body);
}

static void print_rung(long rung, struct measurement *measurement, double speed, double first_speed)
{
    char speedup[32] = "-", ttft[32], itl[32];
    if (first_speed > 0)
        snprintf(speedup, sizeof speedup, "%.2f", speed / first_speed);
    series_median(&measurement->ttft, ttft, sizeof ttft);
    series_median(&measurement->itl, itl, sizeof itl);
    printf("%11ld %7zu %7zu %11.1f %8s %12s %12s\n", rung, measurement->num_ok, measurement->num_failed, speed, speedup, ttft,
           itl);
    fflush(stdout);
}

static int climb(const struct options *options)
{
    double speeds[MOST_RUNGS] = {0}, best = 0;
    size_t num_failed = 0;
    printf("%11s %7s %7s %11s %8s %12s %12s\n", "concurrency", "ok", "failed", "tokens/s", "speedup", "ttft p50 ms",
           "itl p50 ms");
    fflush(stdout);
    warm_up(options);
    for (size_t i = 0; i < options->num_rungs; i++) {
        struct measurement measurement = {0};
        double seconds = workers_run(&measurement, options, options->requests, options->rungs[i]);
        speeds[i] = (double)measurement.num_tokens / seconds;
        if (speeds[i] > best)
            best = speeds[i];
        num_failed += measurement.num_failed;
        print_rung(options->rungs[i], &measurement, speeds[i], speeds[0]);
        measurement_free(&measurement);
    }
    size_t knee = 0;
    while (speeds[knee] < knee_share * best)
        knee++;
    if (best > 0)
        printf("knee: %ld\n", options->rungs[knee]);
    else
        puts("knee: -");
    return num_failed ? OUTCOME_REFUSED : OUTCOME_OK;
}

int program_load(const struct options *options)
{
    return options->num_rungs ? climb(options) : load_once(options);
}
