/* A closed loop of workers that keep their connections. */
#ifndef PELLUCID_WORKERS_H
#define PELLUCID_WORKERS_H

#include "measurement.h"

/* Run `requests` streams from `concurrency` workers; returns the seconds that it took. */
double workers_run(struct measurement *measurement, const struct options *options, long requests, long concurrency);

#endif
