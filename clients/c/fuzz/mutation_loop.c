/*
 * A fuzzing loop for compilers without libFuzzer: deterministic mutations of recorded responses.
 *
 *     fuzz_loop SECONDS SEED FILE...
 *
 * Prints `N executions, seed SEED, no finding` at its end. A finding ends the process (AddressSanitizer, abort) after the
 * input was written to `finding.bin`, which `fuzz_loop 0 0 finding.bin` runs again.
 */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MOST_BYTES = 1 << 16, MOST_FILES = 64 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
void __sanitizer_set_death_callback(void (*callback)(void));

static const char *const words[] = {
    "\r\n", "\n\n", "data:", "data: [DONE]\n\n", "0\r\n\r\n", "FFFFFFFFFFFFFFF\r\n", "\xef\xbb\xbf", "\xf0\x9f", "\\ud83d",
    "\\udc00", "{\"error\":", "[[[[[[[[", "\"choices\":", "content-length: 5\r\n", "transfer-encoding: chunked\r\n",
    "HTTP/1.1 200 OK\r\n", "1e999", "-0", "\"index\":1,", ": ping\n", "null", "\"content\":",
};

static uint8_t *seeds[MOST_FILES], input[MOST_BYTES];
static size_t seed_sizes[MOST_FILES], input_size;
static uint64_t random_state;

/* SplitMix64 (Steele, Lea, Flood 2014). */
static uint64_t next_random(void)
{
    uint64_t z = random_state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static size_t below(size_t bound)
{
    return bound ? (size_t)(next_random() % bound) : 0;
}

static void replace(size_t at, size_t removed, const uint8_t *added, size_t num_added)
{
    if (removed > input_size - at)
        removed = input_size - at;
    if (input_size - removed + num_added > MOST_BYTES)
        return;
    memmove(input + at + num_added, input + at + removed, input_size - at - removed);
    if (num_added)
        memcpy(input + at, added, num_added);
    input_size += num_added - removed;
}

static void mutate(int num_files)
{
    size_t at = below(input_size + 1);
    uint8_t byte = (uint8_t)next_random();
    const char *word = words[below(sizeof words / sizeof *words)];
    size_t other = below((size_t)num_files), from = below(seed_sizes[other]);
    switch (below(6)) {
    case 0:
        replace(at, 1, &byte, 1);
        break;
    case 1:
        replace(at, 0, &byte, 1);
        break;
    case 2:
        replace(at, 1 + below(16), NULL, 0);
        break;
    case 3:
        replace(at, below(4), (const uint8_t *)word, strlen(word));
        break;
    case 4:
        if (at < input_size)
            input[at] ^= (uint8_t)(1u << below(8));
        break;
    default:
        replace(at, below(64), seeds[other] + from, below(seed_sizes[other] - from));
        break;
    }
}

static void keep_input(void)
{
    FILE *file = fopen("finding.bin", "wb");
    if (file) {
        fwrite(input, 1, input_size, file);
        fclose(file);
    }
}

static void on_abort(int number)
{
    (void)number;
    keep_input();
    _exit(134);
}

int main(int count, char **arguments)
{
    int num_files = count - 3;
    if (num_files < 1 || num_files > MOST_FILES) {
        fputs("usage: fuzz_loop SECONDS SEED FILE...\n", stderr);
        return 2;
    }
    for (int i = 0; i < num_files; i++) {
        FILE *file = fopen(arguments[i + 3], "rb");
        if (file == NULL) {
            perror(arguments[i + 3]);
            return 2;
        }
        seeds[i] = malloc(MOST_BYTES);
        if (seeds[i] == NULL)
            return 2;
        seed_sizes[i] = fread(seeds[i], 1, MOST_BYTES, file);
        fclose(file);
    }
    __sanitizer_set_death_callback(keep_input);
    signal(SIGABRT, on_abort);
    random_state = strtoull(arguments[2], NULL, 10);
    time_t until = time(NULL) + (time_t)strtol(arguments[1], NULL, 10);
    unsigned long long executions = 0;
    for (int i = 0; i < num_files; i++, executions++) {
        memcpy(input, seeds[i], input_size = seed_sizes[i]);
        LLVMFuzzerTestOneInput(input, input_size);
    }
    while (time(NULL) < until) {
        size_t chosen = below((size_t)num_files);
        memcpy(input, seeds[chosen], input_size = seed_sizes[chosen]);
        for (size_t i = 1 + below(8); i; i--)
            mutate(num_files);
        LLVMFuzzerTestOneInput(input, input_size);
        executions++;
    }
    for (int i = 0; i < num_files; i++)
        free(seeds[i]);
    printf("%llu executions, seed %s, no finding\n", executions, arguments[2]);
    return 0;
}
