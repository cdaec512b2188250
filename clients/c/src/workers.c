#include "workers.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct work {
    const struct options *options;
    struct call call;
    pthread_mutex_t lock; /* over the two below */
    long num_left;
    struct measurement *measurement;
};

static bool take_request(struct work *work)
{
    pthread_mutex_lock(&work->lock);
    bool is_left = work->num_left > 0;
    work->num_left -= is_left;
    pthread_mutex_unlock(&work->lock);
    return is_left;
}

static void *run_worker(void *context)
{
    struct work *work = context;
    struct exchange exchange;
    exchange_init(&exchange);
    while (take_request(work)) {
        exchange_run(&exchange, work->options, &work->call);
        pthread_mutex_lock(&work->lock);
        measurement_add(work->measurement, &exchange);
        pthread_mutex_unlock(&work->lock);
    }
    exchange_free(&exchange);
    return NULL;
}

double workers_run(struct measurement *measurement, const struct options *options, long requests, long concurrency)
{
    struct work work = {
        .options = options,
        .call = {.path = "/v1/chat/completions", .wants_stream = true, .keeps_connection = true},
        .lock = PTHREAD_MUTEX_INITIALIZER,
        .num_left = requests,
        .measurement = measurement,
    };
    pthread_t threads[MOST_CONCURRENCY];
    long num_threads = 0;
    chat_body(&work.call.body, options, true);
    double started = monotonic_ms();
    for (; num_threads < concurrency; num_threads++) {
        int error = pthread_create(&threads[num_threads], NULL, run_worker, &work);
        if (error) {
            fprintf(stderr, "error: no thread: %s\n", strerror(error));
            exit(OUTCOME_BROKEN);
        }
    }
    for (long i = 0; i < num_threads; i++)
        pthread_join(threads[i], NULL);
    double seconds = (monotonic_ms() - started) / 1e3;
    buffer_free(&work.call.body);
    return seconds;
}
