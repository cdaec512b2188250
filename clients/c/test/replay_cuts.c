/*
 * Recorded responses through the client's own parser, cut everywhere.
 *
 *     replay_cuts FILE           what `chat-stream` prints for the response in FILE (head and body), with the trace id
 *                                and the dashboard of the recording; then, on stderr, how many ways of cutting it gave
 *                                the same bytes. Ends with 1 at the first way that didn't.
 *     replay_cuts --twice FILE   the same with two ways only, whole and byte by byte: for long files
 *     replay_cuts --lost FILE    the connection lost after each byte: `<bytes> <exit code>` for every change of the code
 */
#include <stdlib.h>
#include <string.h>

#include "reply.h"
#include "report.h"

static const char trace_id[] = "0123456789abcdef0123456789abcdef", dashboard[] = "http://127.0.0.1:3100";

struct output {
    char *text;
    size_t length;
    enum outcome outcome;
};

/* Hand `length` bytes over in pieces: up to `cut`, then `step` at a time; each in memory of its own, so that a read past
   a piece is seen. */
static struct output replay(const char *data, size_t length, size_t cut, size_t step)
{
    struct output output = {0};
    FILE *out = open_memstream(&output.text, &output.length);
    struct reply reply;
    if (out == NULL)
        exit(2);
    reply_init(&reply, true, out, NULL);
    for (size_t at = 0; at < length && !reply.is_over;) {
        size_t size = at < cut ? cut - at : step;
        if (size > length - at)
            size = length - at;
        char *piece = grow(NULL, size);
        memcpy(piece, data + at, size);
        reply_feed(&reply, piece, size);
        free(piece);
        at += size;
    }
    reply_end(&reply);
    report_stream(&reply, reply.http.trace_id[0] ? reply.http.trace_id : trace_id, dashboard, out);
    if (reply.failure.outcome != OUTCOME_OK)
        fprintf(out, "error: %s\n", reply.failure.text);
    output.outcome = reply.failure.outcome;
    reply_free(&reply);
    fclose(out);
    return output;
}

static int lose(const char *data, size_t length)
{
    int last = -1;
    for (size_t kept = 0; kept <= length; kept++) {
        struct output output = replay(data, kept, kept, 1);
        if ((int)output.outcome != last)
            printf("%zu %d\n", kept, output.outcome);
        last = output.outcome;
        free(output.text);
    }
    return 0;
}

static int cut_everywhere(const char *data, size_t length, size_t num_cuts)
{
    struct output whole = replay(data, length, length, length);
    size_t num_ways = 1;
    int code = 0;
    for (size_t cut = 0; cut < num_cuts && code == 0; cut++, num_ways++) {
        struct output output = cut ? replay(data, length, cut, length) : replay(data, length, 0, 1);
        if (output.outcome != whole.outcome || output.length != whole.length ||
            memcmp(output.text, whole.text, whole.length) != 0) {
            fprintf(stderr, "cut after %zu bytes, the output is:\n%s", cut, output.text);
            code = 1;
        }
        free(output.text);
    }
    fwrite(whole.text, 1, whole.length, stdout);
    fprintf(stderr, "%zu ways\n", num_ways);
    free(whole.text);
    return code;
}

int main(int count, char **arguments)
{
    bool loses = count == 3 && strcmp(arguments[1], "--lost") == 0;
    bool is_long = count == 3 && strcmp(arguments[1], "--twice") == 0;
    FILE *file = count >= 2 ? fopen(arguments[count - 1], "rb") : NULL;
    struct buffer bytes;
    char block[4096];
    size_t length;
    if (file == NULL) {
        fputs("usage: replay_cuts [--twice | --lost] FILE\n", stderr);
        return 2;
    }
    buffer_init(&bytes, SIZE_MAX);
    while ((length = fread(block, 1, sizeof block, file)) > 0)
        buffer_append(&bytes, block, length);
    fclose(file);
    int code = loses ? lose(bytes.data, bytes.length)
                     : cut_everywhere(bytes.data, bytes.length, is_long ? 1 : bytes.length);
    buffer_free(&bytes);
    return code;
}
