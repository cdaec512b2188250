#include "failure.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void clean(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            *text = ' ';
}

void fail(struct failure *failure, enum outcome outcome, const char *form, ...)
{
    if (failure->outcome != OUTCOME_OK)
        return;
    failure->outcome = outcome;
    va_list arguments;
    va_start(arguments, form);
    vsnprintf(failure->text, sizeof failure->text, form, arguments);
    va_end(arguments);
    clean(failure->text);
}

void fail_with_message(struct failure *failure, const char *prefix, const char *message, size_t length)
{
    char copy[801];
    if (length >= sizeof copy) {
        length = sizeof copy - 1;
        while (length && ((unsigned char)message[length] & 0xc0) == 0x80)
            length--;
    }
    for (size_t i = 0; i < length; i++)
        copy[i] = message[i] ? message[i] : ' ';
    copy[length] = '\0';
    fail(failure, OUTCOME_REFUSED, "%s: %s", prefix, copy);
}

void failure_print(const struct failure *failure)
{
    fprintf(stderr, "error: %s\n", failure->text);
}
