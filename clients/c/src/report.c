#include "report.h"

#include <inttypes.h>

void report_finish(const char *finish, const struct usage *usage, FILE *out)
{
    fprintf(out, "finish: %s\n", finish);
    if (usage->is_known)
        fprintf(out, "tokens: %" PRIu64 " prompt, %" PRIu64 " cached, %" PRIu64 " completion\n", usage->prompt,
                usage->cached, usage->completion);
}

void report_trace(const char *trace_id, const char *dashboard, FILE *out)
{
    fprintf(out, "trace: %s %s/#trace=%s\n", trace_id, dashboard, trace_id);
}

void report_stream(const struct reply *reply, const char *trace_id, const char *dashboard, FILE *out)
{
    if (reply->failure.outcome == OUTCOME_OK) {
        fputc('\n', out);
        report_finish(reply->answer.finish, &reply->answer.usage, out);
    } else if (reply->answer.has_text) {
        fputc('\n', out);
    }
    if (reply->failure.outcome != OUTCOME_NO_CONNECTION)
        report_trace(trace_id, dashboard, out);
    fflush(out);
}
