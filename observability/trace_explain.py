"""The story of a request in plain sentences: what happened, and why."""

from typing import Any

from engine.events import PrefixLookup
from observability.trace_story import NEXT_STEP, Decoding, RequestStory

_WAITED_FOR = {
    "kv_blocks": "free KV blocks: the pool was full of blocks in use",
    "token_budget": "room in the token budget: the steps were full of other requests' tokens",
    "max_num_seqs": "a place among the running sequences: max_num_seqs was reached",
    "shared_prefix": "an older request to compute the very prefix that it needed next",
    NEXT_STEP: "the step in progress to end",
}

_MISSED_BECAUSE = {
    "cold": "nothing of this prompt had been computed before, or not yet to the end of a block",
    "evicted": "what was missing had been cached and was evicted to make room",
    "salt": "the same tokens are cached under another cache salt, which keeps them apart on purpose",
    "tail": "what is left is the last token, which is always computed, or a block that isn't full",
    "disabled": "the prefix cache is off, for the server or for this request",
}


def sentences(story: RequestStory) -> list[str]:
    """Return the story of one request, a sentence a line, in order of time."""
    lines = [_arrival(story)]
    lines += [f"It waited {_ms(seconds)} for {_waited_for(reason)}." for reason, seconds in _longest(story)]
    lines += [_lookup(lookup, at) for at, lookup in enumerate(story.lookups)]
    lines += _prefill(story)
    lines += [_preemption(story, at) for at in range(len(story.preemptions))]
    lines += _decode(story.decoding)
    lines.append(_end(story))
    return lines


def as_data(story: RequestStory) -> dict[str, Any]:
    """Return one row of numbers for tables and `--json`; times in seconds, absent ones None."""
    lookup = story.lookups[0] if story.lookups else None
    return {
        "request_id": story.request_id,
        "is_complete": story.is_complete,
        "outcome": story.outcome,
        "detail": story.detail,
        "n": story.n,
        "num_prompt_tokens": story.num_prompt_tokens,
        "num_cached_tokens": story.num_cached_tokens,
        "num_output_tokens": story.num_output_tokens,
        "cache_miss": lookup.why if lookup else "",
        "num_chunks": len(story.chunks),
        "num_preemptions": len(story.preemptions),
        "queue_s": story.queue_s,
        "waits": dict(story.waits),
        "ttft_s": story.ttft_s,
        "e2e_s": story.e2e_s,
    }


def _arrival(story: RequestStory) -> str:
    choices = f", {story.n} choices" if story.n > 1 else ""
    what = f"{story.num_prompt_tokens} prompt tokens, at most {story.max_tokens} new ones{choices}"
    if not story.is_complete:
        return f"Request {story.request_id} ({what}) was in flight already when the trace begins."
    took = "" if story.queued_t is None else f" and was queued {_ms(story.queued_t - story.arrival)} later"
    return f"Request {story.request_id} arrived ({what}){took}."


def _longest(story: RequestStory) -> list[tuple[str, float]]:
    return [
        (reason, seconds)
        for reason, seconds in sorted(story.waits.items(), key=lambda item: -item[1])
        if seconds >= 5e-5
    ]


def _waited_for(reason: str) -> str:
    return _WAITED_FOR.get(reason, f"`{reason}`")


def _lookup(lookup: PrefixLookup, at: int) -> str:
    when = "" if at == 0 else " again, when it came back"
    found = f"It looked into the prefix cache{when}: {lookup.num_matched_tokens} tokens were there"
    if not lookup.why:
        return f"{found}, all that can be used."
    if lookup.why == "diverged":
        return (
            f"{found}; at position {lookup.position} the prompt parts from what is cached in block {lookup.block_id} "
            f"(token {lookup.actual_token} where the cache has {lookup.expected_token})."
        )
    return f"{found}; {_MISSED_BECAUSE.get(lookup.why, lookup.why)}."


def _prefill(story: RequestStory) -> list[str]:
    chunks = story.chunks
    if not chunks:
        return []
    num_tokens = sum(chunk.num_tokens for chunk in chunks)
    num_again = sum(chunk.num_recomputed for chunk in chunks)
    again = f", {num_again} of them a second time," if num_again else ""
    count = "one chunk" if len(chunks) == 1 else f"{len(chunks)} chunks"
    steps = f"step {chunks[0].step}" if len(chunks) == 1 else f"steps {chunks[0].step} to {chunks[-1].step}"
    line = f"{num_tokens} tokens{again} were computed in {count} ({steps}), in steps of {_ms(_total(story))} in all."
    if story.ttft_s is not None:
        line += f" The first token came {_ms(story.ttft_s)} after arrival."
    return [line]


def _total(story: RequestStory) -> float:
    return sum(chunk.step_s for chunk in story.chunks)


def _preemption(story: RequestStory, at: int) -> str:
    preemption = story.preemptions[at]
    who = f"choice {preemption.index}" if story.n > 1 else "It"
    line = (
        f"In step {preemption.step} {who} was preempted: blocks ran out, and it was the newest of the lowest priority."
    )
    if preemption.beneficiary:
        line += f" Request {preemption.beneficiary} got the next block."
    line += f" {preemption.num_lost_tokens} computed tokens were given up."
    if preemption.resumed_t is None:
        return line + " It never came back."
    waited = preemption.resumed_t - preemption.t
    return line + f" It came back {_ms(waited)} later and computed {preemption.num_recompute_tokens} tokens again."


def _decode(decoding: Decoding) -> list[str]:
    num_steps = decoding.num_steps + decoding.num_shared_steps
    if not num_steps:
        return []
    if not decoding.num_shared_steps:
        return [f"It decoded in {num_steps} steps of {_ms(decoding.seconds / num_steps)} each, beside no prefill."]
    shared = decoding.shared_seconds / decoding.num_shared_steps
    line = (
        f"It decoded in {num_steps} steps; in {decoding.num_shared_steps} of them others' prompts were computed too: "
        f"those took {_ms(shared)} each"
    )
    if not decoding.num_steps:
        return [line + "."]
    alone = decoding.seconds / decoding.num_steps
    extra = max(0.0, shared - alone) * decoding.num_shared_steps
    return [line + f", the others {_ms(alone)}, so the interference cost it about {_ms(extra)}."]


def _end(story: RequestStory) -> str:
    made = f"{story.num_output_tokens} tokens"
    if story.e2e_s is None:
        return f"At the end of the trace it is still in flight, with {made}."
    end = {
        "finished": f"It finished with `{story.detail}`",
        "failed": f"It failed: {story.detail};",
        "aborted": f"It was aborted ({story.detail})",
        "rejected": f"It was refused: {story.detail};",
    }[story.outcome]
    return f"{end} after {_ms(story.e2e_s)}, with {made}."


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms" if seconds < 10 else f"{seconds:.1f} s"
