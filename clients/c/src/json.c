#include "json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool read_value(struct json *json, size_t at, int depth);

static void skip_space(struct json *json)
{
    while (json->at < json->end && (*json->at == ' ' || *json->at == '\t' || *json->at == '\n' || *json->at == '\r'))
        json->at++;
}

static bool take(struct json *json, char c)
{
    if (json->at == json->end || *json->at != c)
        return false;
    json->at++;
    return true;
}

static bool take_word(struct json *json, const char *word)
{
    size_t length = strlen(word);
    if ((size_t)(json->end - json->at) < length || memcmp(json->at, word, length) != 0)
        return false;
    json->at += length;
    return true;
}

static size_t new_value(struct json *json)
{
    if (json->count == json->capacity) {
        json->capacity = json->capacity ? 2 * json->capacity : 32;
        json->values = grow(json->values, json->capacity * sizeof *json->values);
    }
    json->values[json->count] = (struct json_value){0};
    return json->count++;
}

static bool read_hex4(struct json *json, unsigned *unit)
{
    if (json->end - json->at < 4)
        return false;
    *unit = 0;
    for (int i = 0; i < 4; i++) {
        char c = *json->at++;
        unsigned digit;
        if (c >= '0' && c <= '9')
            digit = (unsigned)(c - '0');
        else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
            digit = (unsigned)((c | 0x20) - 'a' + 10);
        else
            return false;
        *unit = *unit * 16 + digit;
    }
    return true;
}

static void append_code_point(struct buffer *text, unsigned code)
{
    char bytes[4];
    size_t length;
    if (code < 0x80) {
        bytes[0] = (char)code;
        length = 1;
    } else if (code < 0x800) {
        bytes[0] = (char)(0xc0 | code >> 6);
        bytes[1] = (char)(0x80 | (code & 0x3f));
        length = 2;
    } else if (code < 0x10000) {
        bytes[0] = (char)(0xe0 | code >> 12);
        bytes[1] = (char)(0x80 | (code >> 6 & 0x3f));
        bytes[2] = (char)(0x80 | (code & 0x3f));
        length = 3;
    } else {
        bytes[0] = (char)(0xf0 | code >> 18);
        bytes[1] = (char)(0x80 | (code >> 12 & 0x3f));
        bytes[2] = (char)(0x80 | (code >> 6 & 0x3f));
        bytes[3] = (char)(0x80 | (code & 0x3f));
        length = 4;
    }
    buffer_append(text, bytes, length);
}

/* What follows `\u`: one unit, or the two of a pair; a lone surrogate is U+FFFD. */
static bool read_unicode_escape(struct json *json)
{
    unsigned unit, low;
    if (!read_hex4(json, &unit))
        return false;
    if (unit >= 0xd800 && unit < 0xdc00 && json->end - json->at >= 6 && json->at[0] == '\\' && json->at[1] == 'u') {
        const char *after_first = json->at;
        json->at += 2;
        if (!read_hex4(json, &low))
            return false;
        if (low >= 0xdc00 && low < 0xe000) {
            append_code_point(&json->text, 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00));
            return true;
        }
        json->at = after_first;
    }
    append_code_point(&json->text, unit >= 0xd800 && unit < 0xe000 ? 0xfffd : unit);
    return true;
}

static bool read_escape(struct json *json)
{
    static const char names[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    if (json->at == json->end)
        return false;
    char c = *json->at++;
    if (c == 'u')
        return read_unicode_escape(json);
    const char *found = c ? strchr(names, c) : NULL;
    if (found == NULL)
        return false;
    return buffer_append(&json->text, &meanings[found - names], 1);
}

static bool read_string(struct json *json, size_t *start, size_t *length)
{
    *start = json->text.length;
    if (!take(json, '"'))
        return false;
    for (;;) {
        const char *run = json->at;
        while (json->at < json->end && *json->at != '"' && *json->at != '\\' && (unsigned char)*json->at >= 0x20)
            json->at++;
        buffer_append(&json->text, run, (size_t)(json->at - run));
        if (json->at == json->end || (unsigned char)*json->at < 0x20)
            return false;
        if (*json->at++ == '"')
            break;
        if (!read_escape(json))
            return false;
    }
    *length = json->text.length - *start;
    return true;
}

static size_t take_digits(struct json *json)
{
    size_t count = 0;
    while (json->at < json->end && *json->at >= '0' && *json->at <= '9') {
        json->at++;
        count++;
    }
    return count;
}

static bool read_number(struct json *json, double *number)
{
    const char *start = json->at;
    take(json, '-');
    bool leading_zero = json->at < json->end && *json->at == '0';
    size_t digits = take_digits(json);
    if (digits == 0 || (leading_zero && digits > 1))
        return false;
    if (take(json, '.') && take_digits(json) == 0)
        return false;
    if (json->at < json->end && (*json->at == 'e' || *json->at == 'E')) {
        json->at++;
        if (!take(json, '+'))
            take(json, '-');
        if (take_digits(json) == 0)
            return false;
    }
    char digits_text[64]; /* longer numbers are not counts, and nothing else is asked of numbers */
    size_t length = (size_t)(json->at - start);
    *number = -1;
    if (length < sizeof digits_text) {
        memcpy(digits_text, start, length);
        digits_text[length] = '\0';
        *number = strtod(digits_text, NULL);
    }
    return true;
}

/* The children of values[at], up to the closing character. */
static bool read_children(struct json *json, size_t at, char closing, int depth)
{
    size_t last = 0;
    if (depth > JSON_DEPTH_LIMIT)
        return false;
    json->at++;
    skip_space(json);
    if (take(json, closing))
        return true;
    do {
        size_t child = new_value(json), name = 0, name_length = 0;
        skip_space(json);
        if (closing == '}') {
            if (!read_string(json, &name, &name_length))
                return false;
            skip_space(json);
            if (!take(json, ':'))
                return false;
        }
        if (!read_value(json, child, depth + 1))
            return false;
        json->values[child].name = name;
        json->values[child].name_length = name_length;
        if (last)
            json->values[last].next = child;
        else
            json->values[at].first = child;
        last = child;
        skip_space(json);
    } while (take(json, ','));
    return take(json, closing);
}

static bool read_value(struct json *json, size_t at, int depth)
{
    skip_space(json);
    if (json->at == json->end)
        return false;
    size_t start = 0, length = 0;
    double number = 0;
    switch (*json->at) {
    case '{':
        json->values[at].type = JSON_OBJECT;
        return read_children(json, at, '}', depth);
    case '[':
        json->values[at].type = JSON_ARRAY;
        return read_children(json, at, ']', depth);
    case '"':
        json->values[at].type = JSON_STRING;
        if (!read_string(json, &start, &length))
            return false;
        json->values[at].text = start;
        json->values[at].text_length = length;
        return true;
    case 't':
    case 'f':
        json->values[at].type = JSON_BOOL;
        return take_word(json, "true") || take_word(json, "false");
    case 'n':
        return take_word(json, "null");
    default:
        json->values[at].type = JSON_NUMBER;
        if (!read_number(json, &number))
            return false;
        json->values[at].number = number;
        return true;
    }
}

bool json_parse(struct json *json, const char *data, size_t length)
{
    *json = (struct json){.at = data, .end = data + length};
    buffer_init(&json->text, SIZE_MAX);
    if (!read_value(json, new_value(json), 1))
        return false;
    skip_space(json);
    return json->at == json->end;
}

void json_free(struct json *json)
{
    free(json->values);
    buffer_free(&json->text);
}

const struct json_value *json_root(const struct json *json)
{
    return &json->values[0];
}

const struct json_value *json_first(const struct json *json, const struct json_value *value)
{
    return value && value->first ? &json->values[value->first] : NULL;
}

const struct json_value *json_next(const struct json *json, const struct json_value *value)
{
    return value->next ? &json->values[value->next] : NULL;
}

const struct json_value *json_member(const struct json *json, const struct json_value *value, const char *name)
{
    const struct json_value *found = NULL;
    size_t length = strlen(name);
    if (!json_is(value, JSON_OBJECT))
        return NULL;
    for (const struct json_value *child = json_first(json, value); child; child = json_next(json, child))
        if (child->name_length == length && (!length || memcmp(json->text.data + child->name, name, length) == 0))
            found = child;
    return found;
}

bool json_is(const struct json_value *value, enum json_type type)
{
    return value != NULL && value->type == type;
}

const char *json_text(const struct json *json, const struct json_value *value)
{
    return value->text_length ? json->text.data + value->text : "";
}

uint64_t json_count(const struct json_value *value)
{
    if (!json_is(value, JSON_NUMBER) || !(value->number >= 0 && value->number <= 9007199254740991.0))
        return 0;
    return value->number == floor(value->number) ? (uint64_t)value->number : 0;
}

void json_quote(struct buffer *buffer, const char *text)
{
    static const char names[] = "\"\\bfnrt", meanings[] = "\"\\\b\f\n\r\t";
    buffer_append(buffer, "\"", 1);
    for (; *text; text++) {
        const char *found = strchr(meanings, *text);
        char escape[8];
        if (found)
            snprintf(escape, sizeof escape, "\\%c", names[found - meanings]);
        else if ((unsigned char)*text < 0x20)
            snprintf(escape, sizeof escape, "\\u%04x", (unsigned)*text);
        else
            snprintf(escape, sizeof escape, "%c", *text);
        buffer_text(buffer, escape);
    }
    buffer_append(buffer, "\"", 1);
}

bool utf8_is_valid(const char *data, size_t length)
{
    const unsigned char *at = (const unsigned char *)data, *end = at + length;
    while (at < end) {
        unsigned lead = *at++, low = 0x80, high = 0xbf;
        int following;
        if (lead < 0x80)
            continue;
        if (lead >= 0xc2 && lead <= 0xdf)
            following = 1;
        else if (lead >= 0xe0 && lead <= 0xef)
            following = 2;
        else if (lead >= 0xf0 && lead <= 0xf4)
            following = 3;
        else
            return false;
        if (lead == 0xe0)
            low = 0xa0;
        else if (lead == 0xed)
            high = 0x9f;
        else if (lead == 0xf0)
            low = 0x90;
        else if (lead == 0xf4)
            high = 0x8f;
        for (; following; following--, low = 0x80, high = 0xbf)
            if (at == end || *at < low || *at++ > high)
                return false;
    }
    return true;
}
