/* A JSON document (RFC 8259) as a tree over its own copy of the strings. */
#ifndef PELLUCID_JSON_H
#define PELLUCID_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buffer.h"

enum { JSON_DEPTH_LIMIT = 100 };

enum json_type { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

struct json_value {
    enum json_type type;
    double number;
    size_t text, text_length; /* of a string, in the document's text */
    size_t name, name_length; /* of a member */
    size_t first, next;       /* child and sibling in the document's values; 0: none, as 0 is the root */
};

struct json {
    struct json_value *values;
    size_t count, capacity;
    struct buffer text;

    const char *at, *end; /* what is left to read */
};

/* Parse; false when it isn't JSON, or nested too deep. Free it in both cases. Bytes must be valid UTF-8. */
bool json_parse(struct json *json, const char *data, size_t length);
void json_free(struct json *json);

/* The root; a member of an object (the last of that name) or NULL, also when `value` is NULL or no object. */
const struct json_value *json_root(const struct json *json);
const struct json_value *json_member(const struct json *json, const struct json_value *value, const char *name);
const struct json_value *json_first(const struct json *json, const struct json_value *value);
const struct json_value *json_next(const struct json *json, const struct json_value *value);

bool json_is(const struct json_value *value, enum json_type type); /* false for NULL */
const char *json_text(const struct json *json, const struct json_value *value);

/* A whole number from 0 to 2^53-1; 0 for anything else. */
uint64_t json_count(const struct json_value *value);

/* Append `text` as a JSON string. */
void json_quote(struct buffer *buffer, const char *text);

/* Say whether bytes are UTF-8 (no surrogates, nothing over U+10FFFF, shortest forms). */
bool utf8_is_valid(const char *data, size_t length);

#endif
