/* One TCP connection with time limits on connect and on silence. */
#ifndef PELLUCID_CONNECTION_H
#define PELLUCID_CONNECTION_H

#include <stdbool.h>
#include <stddef.h>

struct options;
struct failure;

struct connection {
    int socket;        /* -1: closed */
    double connect_ms; /* how long the handshake took */
};

enum receive_result { RECEIVED, ENDED, SILENT };

double monotonic_ms(void);

/* Try the host's addresses in turn, IPv6 and IPv4 as the system orders them. */
bool connection_open(struct connection *connection, const struct options *options, struct failure *failure);
void connection_close(struct connection *connection);

/* Write all of it; false when the connection broke or took nothing for `timeout_ms`. */
bool connection_send(struct connection *connection, const char *data, size_t length, long timeout_ms);

/* Read what is there, waiting at most `timeout_ms` for it. */
enum receive_result connection_receive(
    struct connection *connection, char *data, size_t size, size_t *length, long timeout_ms);

#endif
