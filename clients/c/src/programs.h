/* The five programs; each returns the exit code. */
#ifndef PELLUCID_PROGRAMS_H
#define PELLUCID_PROGRAMS_H

struct options;

int program_models(const struct options *options);
int program_chat(const struct options *options);
int program_chat_stream(const struct options *options);
int program_probe(const struct options *options);
int program_load(const struct options *options);

#endif
