package pellucid;

import java.util.Map;

record Usage(long prompt, long cached, long completion) {
    /** Return null when the body or chunk has none. */
    static Usage of(Object body) {
        Object usage = Json.member(body, "usage");
        if (!(usage instanceof Map)) return null;
        Object details = Json.member(usage, "prompt_tokens_details");
        return new Usage(count(usage, "prompt_tokens"), count(details, "cached_tokens"), count(usage, "completion_tokens"));
    }

    private static long count(Object object, String name) {
        boolean isCount = Json.member(object, name) instanceof Double number && number > 0 && number <= (1L << 53) - 1
            && number == Math.rint(number);
        return isCount ? ((Double) Json.member(object, name)).longValue() : 0;
    }
}
