"""Events as short lines, so that a test can hold a whole list of them literally."""

from engine.events import (
    BlockAllocated,
    BlockCopied,
    BlockEvicted,
    BlockFreed,
    BlockPublished,
    BlockReleased,
    BlockShared,
    CacheCleared,
    Event,
    PrefixLookup,
    RequestAborted,
    RequestArrived,
    RequestChunk,
    RequestFailed,
    RequestFinished,
    RequestFirstToken,
    RequestPreempted,
    RequestQueued,
    RequestRejected,
    RequestResumed,
    RequestScheduled,
    RequestTokens,
    SequenceFinished,
    Stalled,
)


def spell(event: Event) -> str:
    """Return one line for an event; a choice other than 0 is written `id/index`."""
    match event:
        case BlockAllocated():
            return f"{_choice(event)} gets {event.block_id} at {event.position}"
        case BlockShared():
            return f"{_choice(event)} shares {event.block_id} at {event.position}, refs {event.ref_count}"
        case BlockCopied():
            return f"{_choice(event)} copies {event.num_tokens} of {event.source} to {event.block_id}"
        case BlockPublished():
            return f"{event.request_id} publishes {event.block_id} below {event.parent_block_id}"
        case BlockReleased():
            return f"{_choice(event)} lets go of {event.block_id}, refs {event.ref_count}"
        case BlockEvicted():
            return f"evicts {event.block_id}: {event.reason}"
        case BlockFreed():
            return f"frees {event.block_id}"
        case CacheCleared():
            return f"clears {event.num_blocks}"
        case PrefixLookup():
            place = f" at {event.position}" if event.position >= 0 else ""
            block = f" in {event.block_id}" if event.block_id >= 0 else ""
            tokens = f", {event.expected_token} not {event.actual_token}" if event.expected_token >= 0 else ""
            found = f"{event.num_matched_tokens} of {event.num_prompt_tokens}"
            return f"{_choice(event)} finds {found}: {event.why}{place}{block}{tokens}"
        case RequestArrived():
            return f"{event.request_id} arrives"
        case RequestRejected():
            return f"{event.request_id} is rejected: {event.error_type}: {event.message}"
        case RequestQueued():
            return f"{event.request_id} queues, {event.num_waiting} wait"
        case RequestScheduled():
            return f"{event.request_id} is scheduled, {event.num_cached_tokens} cached"
        case RequestChunk():
            again = f", {event.num_recomputed} again" if event.num_recomputed else ""
            return f"{_choice(event)} computes {event.num_tokens} from {event.start}{again}"
        case RequestFirstToken():
            return f"{_choice(event)} has its first token"
        case RequestTokens():
            return f"{_choice(event)} gets {event.num_tokens} tokens, has {event.num_output_tokens}"
        case RequestPreempted():
            return f"{_choice(event)} is preempted, loses {event.num_lost_tokens}, time {event.num_preemptions}"
        case RequestResumed():
            return (
                f"{_choice(event)} resumes, {event.num_cached_tokens} cached, "
                f"{event.num_recompute_tokens} to compute again"
            )
        case SequenceFinished():
            overrun = f", {event.num_overrun_tokens} overrun" if event.num_overrun_tokens else ""
            return f"{_choice(event)} ends: {event.finish_reason} with {event.num_output_tokens}{overrun}"
        case RequestFinished():
            return f"{event.request_id} finishes: {event.finish_reason} with {event.num_output_tokens}"
        case RequestFailed():
            return f"{event.request_id} fails with {event.num_output_tokens}: {event.error_type}: {event.message}"
        case RequestAborted():
            return f"{event.request_id} is aborted with {event.num_output_tokens}: {event.reason}"
        case Stalled():
            return f"stalled after {event.num_steps} steps: {event.request_id}: {event.cause}"
        case _:
            return str(event.__struct_config__.tag)


def _choice(event: Event) -> str:
    request_id: str = event.request_id  # type: ignore[attr-defined]
    index: int = getattr(event, "index", 0)
    return f"{request_id}/{index}" if index else request_id
