#include "connection.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "failure.h"
#include "options.h"

double monotonic_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

/* Wait until the socket is ready; 0 when it isn't in time. Signals don't lengthen the wait. */
static int wait_ready(int socket, short events, long timeout_ms)
{
    double until = monotonic_ms() + (double)timeout_ms;
    struct pollfd entry = {.fd = socket, .events = events};
    for (;;) {
        double left = until - monotonic_ms();
        int ready = poll(&entry, 1, left > 0 ? (int)left + 1 : 0);
        if (ready >= 0 || errno != EINTR)
            return ready;
    }
}

static int connect_to(const struct addrinfo *address, long timeout_ms, bool *is_late)
{
    int descriptor = socket(address->ai_family, address->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, address->ai_protocol);
    if (descriptor < 0)
        return -1;
    int on = 1, error = 0;
    socklen_t size = sizeof error;
    setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect(descriptor, address->ai_addr, address->ai_addrlen) == 0)
        return descriptor;
    if (errno == EINPROGRESS) {
        int ready = wait_ready(descriptor, POLLOUT, timeout_ms);
        *is_late = *is_late || ready == 0;
        if (ready > 0 && getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0)
            return descriptor;
    }
    close(descriptor);
    return -1;
}

bool connection_open(struct connection *connection, const struct options *options, struct failure *failure)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *addresses = NULL;
    bool is_late = false;
    double started = monotonic_ms();
    connection->socket = -1;
    if (getaddrinfo(options->host, options->port, &hints, &addresses) == 0) {
        for (struct addrinfo *at = addresses; at && connection->socket < 0; at = at->ai_next) {
            started = monotonic_ms();
            connection->socket = connect_to(at, options->connect_timeout_ms, &is_late);
        }
        freeaddrinfo(addresses);
    }
    connection->connect_ms = monotonic_ms() - started;
    if (connection->socket >= 0)
        return true;
    if (is_late)
        fail(failure, OUTCOME_NO_CONNECTION, "no connection to %s within %ld ms", options->authority,
             options->connect_timeout_ms);
    else
        fail(failure, OUTCOME_NO_CONNECTION, "no connection to %s", options->authority);
    return false;
}

void connection_close(struct connection *connection)
{
    if (connection->socket >= 0)
        close(connection->socket);
    connection->socket = -1;
}

bool connection_send(struct connection *connection, const char *data, size_t length, long timeout_ms)
{
    while (length) {
        ssize_t sent = send(connection->socket, data, length, MSG_NOSIGNAL);
        if (sent > 0) {
            data += sent;
            length -= (size_t)sent;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            if (wait_ready(connection->socket, POLLOUT, timeout_ms) <= 0)
                return false;
        } else if (errno != EINTR) {
            return false;
        }
    }
    return true;
}

enum receive_result connection_receive(
    struct connection *connection, char *data, size_t size, size_t *length, long timeout_ms)
{
    for (;;) {
        ssize_t received = recv(connection->socket, data, size, 0);
        if (received > 0) {
            *length = (size_t)received;
            return RECEIVED;
        }
        if (received == 0)
            return ENDED;
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN && errno != EWOULDBLOCK)
            return ENDED;
        int ready = wait_ready(connection->socket, POLLIN, timeout_ms);
        if (ready == 0)
            return SILENT;
        if (ready < 0)
            return ENDED;
    }
}
