/*
 * Fuzzing of everything that reads the server's bytes: HTTP, events, UTF-8, JSON.
 *
 * Each input is read whole and in pieces; both must come to the same. With clang this is a libFuzzer target
 * (`make fuzz-libfuzzer`); without, `make fuzz` links the small loop of mutation_loop.c to it.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "reply.h"
#include "report.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct output {
    char *text;
    size_t length;
};

static struct output read_in_pieces(const uint8_t *data, size_t size, size_t step)
{
    struct output output = {0};
    FILE *out = open_memstream(&output.text, &output.length);
    struct reply reply;
    if (out == NULL)
        abort();
    reply_init(&reply, true, out, NULL);
    for (size_t at = 0; at < size && !reply.is_over; at += step) {
        size_t length = size - at < step ? size - at : step;
        char *piece = grow(NULL, length);
        memcpy(piece, data + at, length);
        reply_feed(&reply, piece, length);
        free(piece);
    }
    reply_end(&reply);
    report_stream(&reply, reply.http.trace_id, "", out);
    fprintf(out, "%d %s\n", reply.failure.outcome, reply.failure.text);
    reply_free(&reply);
    fclose(out);
    return output;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct output whole = read_in_pieces(data, size, size ? size : 1);
    struct output pieces = read_in_pieces(data, size, 1 + (size ? data[size - 1] % 7 : 0));
    if (whole.length != pieces.length || memcmp(whole.text, pieces.text, whole.length) != 0)
        abort();
    free(whole.text);
    free(pieces.text);
    return 0;
}
