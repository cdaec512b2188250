/* `load`: a closed loop of workers that keep their connections. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "measurement.h"
#include "programs.h"

struct load {
    const struct options *options;
    struct call call;
    pthread_mutex_t lock; /* over the two below */
    long num_left;
    struct measurement measurement;
};

static bool take_request(struct load *load)
{
    pthread_mutex_lock(&load->lock);
    bool is_left = load->num_left > 0;
    load->num_left -= is_left;
    pthread_mutex_unlock(&load->lock);
    return is_left;
}

static void *work(void *context)
{
    struct load *load = context;
    struct exchange exchange;
    exchange_init(&exchange);
    while (take_request(load)) {
        exchange_run(&exchange, load->options, &load->call);
        pthread_mutex_lock(&load->lock);
        measurement_add(&load->measurement, &exchange);
        pthread_mutex_unlock(&load->lock);
    }
    exchange_free(&exchange);
    return NULL;
}

int program_load(const struct options *options)
{
    struct load load = {
        .options = options,
        .call = {.path = "/v1/chat/completions", .wants_stream = true, .keeps_connection = true},
        .lock = PTHREAD_MUTEX_INITIALIZER,
        .num_left = options->requests,
    };
    pthread_t threads[256];
    long num_threads = 0;
    chat_body(&load.call.body, options, true);
    double started = monotonic_ms();
    for (; num_threads < options->concurrency; num_threads++) {
        int error = pthread_create(&threads[num_threads], NULL, work, &load);
        if (error) {
            fprintf(stderr, "error: no thread: %s\n", strerror(error));
            exit(OUTCOME_BROKEN);
        }
    }
    for (long i = 0; i < num_threads; i++)
        pthread_join(threads[i], NULL);
    double seconds = (monotonic_ms() - started) / 1e3;
    printf("concurrency: %ld\n", options->concurrency);
    measurement_print_counts(&load.measurement);
    printf("tokens/s: %.1f\n", (double)load.measurement.num_tokens / seconds);
    measurement_print_times(&load.measurement);
    int code = load.measurement.num_failed ? OUTCOME_REFUSED : OUTCOME_OK;
    measurement_free(&load.measurement);
    buffer_free(&load.call.body);
    return code;
}
