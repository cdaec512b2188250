"""A sequence: the ids and the state of one choice of one request inside the engine."""

import enum

import msgspec

from engine.sampling_params import SamplingParams


class EngineRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine is asked to do; token ids in.

    Attributes:
        request_id: ours, unique for the life of the engine; never a client's.
        prompt_token_ids: at least one, each in 0..vocab_size-1.
        params: checked sampling settings.
        arrival: monotonic seconds when the body was parsed, before template and tokenizer.
        priority: lower goes first; ties by age.
        cache_salt: prompts share KV only within one salt.
    """

    request_id: str
    prompt_token_ids: list[int]
    params: SamplingParams
    arrival: float
    priority: int = 0
    cache_salt: str = ""


class SequenceStatus(enum.Enum):
    WAITING = "waiting"  # never scheduled yet
    RUNNING = "running"  # holds blocks; prefilling while num_computed_tokens < num_tokens - 1, else decoding
    PREEMPTED = "preempted"  # gave its blocks back, waits again
    FINISHED = "finished"  # ended in any way; holds nothing


class FinishReason(enum.Enum):
    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    ERROR = "error"


class Sequence:
    """One choice of one request.

    The scheduler owns `status` and `num_computed_tokens`; the block manager owns `block_table` and `num_slots`;
    the ledger knows the model and so sets `max_output_tokens` and `stop_ids`.

    Attributes:
        request: the request it belongs to.
        request_id: of that.
        index: which of the request's `n` choices.
        order: admission order over the engine's life; smaller is older. Forks share their parent's.
        output_token_ids: generated so far.
        max_output_tokens: after so many it ends with `length`.
        stop_ids: tokens that end it.
        num_computed_tokens: tokens whose KV is written and belongs to this sequence's block table.
        block_table: physical block of each logical block, append-only while running.
        num_slots: tokens that fit into the table as it is; a tail shared with a fork takes no more.
        num_cached_tokens: prompt tokens taken from the prefix cache at the first admission.
        max_computed_tokens: the most tokens whose KV it had before a preemption; computing one of them is a repetition.
        num_preemptions: how often it lost its blocks.
        is_catching_up: whether it was resumed after a preemption and has had no new token since.
    """

    __slots__ = (
        "block_table",
        "finish_reason",
        "index",
        "is_catching_up",
        "max_computed_tokens",
        "max_output_tokens",
        "num_cached_tokens",
        "num_computed_tokens",
        "num_preemptions",
        "num_slots",
        "order",
        "output_token_ids",
        "request",
        "request_id",
        "status",
        "stop_ids",
    )

    def __init__(self, request: EngineRequest, *, index: int = 0, order: int = 0) -> None:
        self.request = request
        self.request_id = request.request_id
        self.index = index
        self.order = order
        self.status = SequenceStatus.WAITING
        self.finish_reason: FinishReason | None = None
        self.output_token_ids: list[int] = []
        self.max_output_tokens = request.params.max_tokens
        self.stop_ids = frozenset(request.params.stop_token_ids)
        self.num_computed_tokens = 0
        self.block_table: list[int] = []
        self.num_slots = 0
        self.num_cached_tokens = 0
        self.max_computed_tokens = 0
        self.num_preemptions = 0
        self.is_catching_up = False

    @property
    def params(self) -> SamplingParams:
        return self.request.params

    @property
    def num_prompt_tokens(self) -> int:
        return len(self.request.prompt_token_ids)

    @property
    def num_output_tokens(self) -> int:
        return len(self.output_token_ids)

    @property
    def num_tokens(self) -> int:
        """Prompt and output tokens known; the last one's KV may not be written yet."""
        return len(self.request.prompt_token_ids) + len(self.output_token_ids)

    @property
    def is_prefilling(self) -> bool:
        """Whether more than the newest token is still to be computed."""
        return self.num_computed_tokens < self.num_tokens - 1 or not self.output_token_ids

    def token_ids(self, start: int, stop: int) -> list[int]:
        """Return tokens start..stop-1 of prompt + output; cost is proportional to stop - start."""
        prompt = self.request.prompt_token_ids
        num_prompt = len(prompt)
        if stop <= num_prompt:
            return prompt[start:stop]
        if start >= num_prompt:
            return self.output_token_ids[start - num_prompt : stop - num_prompt]
        return prompt[start:] + self.output_token_ids[: stop - num_prompt]

    def __repr__(self) -> str:
        return (
            f"Sequence({self.request_id}/{self.index} {self.status.value} computed "
            f"{self.num_computed_tokens}/{self.num_tokens})"
        )


SeqKey = tuple[int, int, int]


def seq_key(seq: Sequence) -> SeqKey:
    """Return the place of a sequence in every queue: priority, then age, then choice."""
    return (seq.request.priority, seq.order, seq.index)
