"""The ledger: every request in flight, what it asked for, and the one way in which it ends."""

from engine.config import SchedulerConfig
from engine.errors import ContextLengthError, InvalidRequestError
from engine.events import (
    EventSink,
    RequestAborted,
    RequestArrived,
    RequestFailed,
    RequestFinished,
    RequestRejected,
    SequenceFinished,
)
from engine.messages import ChoiceOutput
from engine.sequence import EngineRequest, FinishReason, Sequence, SequenceStatus


class RequestRecord:
    """A request in flight.

    Attributes:
        sequences: its choices so far: one until its prefill is complete, then `n`.
        num_prompt_logprobs: last prompt position reported; a prefill repeated after a preemption reports none again.
        num_done, num_done_tokens: choices that are complete, and their output tokens.
        is_cut_short: whether one of them ran into `length`.
    """

    __slots__ = (
        "is_cut_short",
        "num_done",
        "num_done_tokens",
        "num_prompt_logprobs",
        "request",
        "sequences",
    )

    def __init__(self, request: EngineRequest, seq: Sequence) -> None:
        self.request = request
        self.sequences = [seq]
        self.num_prompt_logprobs = 0
        self.num_done = 0
        self.num_done_tokens = 0
        self.is_cut_short = False

    @property
    def num_unborn(self) -> int:
        """Choices that will be forked when the prompt is computed."""
        return self.request.params.n - len(self.sequences)

    @property
    def num_seats(self) -> int:
        """Running sequences that each of its choices counts for: the first one for all that it will fork."""
        return 1 + self.num_unborn

    @property
    def unfinished(self) -> list[Sequence]:
        return [seq for seq in self.sequences if seq.status is not SequenceStatus.FINISHED]

    @property
    def num_output_tokens(self) -> int:
        return self.num_done_tokens + sum(len(seq.output_token_ids) for seq in self.unfinished)


class RequestLedger:
    """Takes requests in or refuses them, and says each one's single terminal event.

    Args:
        config: the limits that a request must keep.
        events: where request events go.
        eos_token_ids: end a choice unless its request ignores them.

    Attributes:
        records: the requests in flight, by id, oldest first; read-only for everyone else.
    """

    def __init__(self, config: SchedulerConfig, events: EventSink, eos_token_ids: tuple[int, ...]) -> None:
        self._config = config
        self._events = events
        self._eos_token_ids = frozenset(eos_token_ids)
        self.records: dict[str, RequestRecord] = {}
        self._num_accepted = 0

    def __len__(self) -> int:
        return len(self.records)

    def take_in(self, request: EngineRequest) -> Sequence:
        """Record a request that has arrived and return its first choice.

        Raises:
            ContextLengthError: it can never fit.
            InvalidRequestError: it has more choices than can run at once, or no prompt. Either way it has ended.
        """
        assert request.request_id not in self.records, f"request id {request.request_id} is in flight already"
        params = request.params
        self._events.emit(
            RequestArrived,
            request_id=request.request_id,
            arrival=request.arrival,
            num_prompt_tokens=len(request.prompt_token_ids),
            max_tokens=params.max_tokens,
            n=params.n,
            priority=request.priority,
            salted=bool(request.cache_salt),
        )
        try:
            max_output_tokens = self._output_limit(request)
        except InvalidRequestError as error:
            self._events.emit(
                RequestRejected, request_id=request.request_id, error_type=error.error_type, message=error.message
            )
            raise
        self._num_accepted += 1
        seq = Sequence(request, order=self._num_accepted)
        seq.max_output_tokens = max_output_tokens
        if not params.ignore_eos:
            seq.stop_ids |= self._eos_token_ids
        self.records[request.request_id] = RequestRecord(request, seq)
        return seq

    def finish(self, seq: Sequence, reason: FinishReason, num_output_tokens: int) -> None:
        """Complete one choice with its first `num_output_tokens` tokens, and the request with its last choice."""
        record = self.records[seq.request_id]
        seq.status = SequenceStatus.FINISHED
        seq.finish_reason = reason
        record.num_done += 1
        record.num_done_tokens += num_output_tokens
        record.is_cut_short |= reason is FinishReason.LENGTH
        self._events.emit(
            SequenceFinished,
            request_id=seq.request_id,
            index=seq.index,
            finish_reason=reason.value,
            num_output_tokens=num_output_tokens,
            num_overrun_tokens=len(seq.output_token_ids) - num_output_tokens,
        )
        if record.num_done < record.request.params.n:
            return
        del self.records[seq.request_id]
        self._events.emit(
            RequestFinished,
            request_id=seq.request_id,
            finish_reason=(FinishReason.LENGTH if record.is_cut_short else FinishReason.STOP).value,
            num_prompt_tokens=seq.num_prompt_tokens,
            num_cached_tokens=record.sequences[0].num_cached_tokens,
            num_output_tokens=record.num_done_tokens,
            num_preemptions=sum(each.num_preemptions for each in record.sequences),
        )

    def fail(self, record: RequestRecord, *, error_type: str, message: str) -> list[ChoiceOutput]:
        """End a request for a fault of ours; return the outputs that say so."""
        self._events.emit(
            RequestFailed,
            request_id=record.request.request_id,
            error_type=error_type,
            message=message,
            num_output_tokens=record.num_output_tokens,
        )
        return self._end(record, FinishReason.ERROR, error=message, error_type=error_type)

    def abort(self, record: RequestRecord, reason: str) -> list[ChoiceOutput]:
        """End a request that nobody wants any more; return the outputs that say so."""
        self._events.emit(
            RequestAborted,
            request_id=record.request.request_id,
            reason=reason,
            num_output_tokens=record.num_output_tokens,
        )
        return self._end(record, FinishReason.ABORT)

    def _end(
        self, record: RequestRecord, reason: FinishReason, *, error: str = "", error_type: str = ""
    ) -> list[ChoiceOutput]:
        """Forget a request; its unfinished and unborn choices all end with `reason`."""
        del self.records[record.request.request_id]
        indices = [seq.index for seq in record.unfinished]
        indices.extend(range(len(record.sequences), record.request.params.n))
        for seq in record.unfinished:
            seq.status = SequenceStatus.FINISHED
            seq.finish_reason = reason
        return [
            ChoiceOutput(
                request_id=record.request.request_id,
                index=index,
                finish_reason=reason.value,
                error=error,
                error_type=error_type,
                num_cached_tokens=record.sequences[0].num_cached_tokens,
            )
            for index in indices
        ]

    def _output_limit(self, request: EngineRequest) -> int:
        """Return how many output tokens a choice may have; raise if the request can never be served."""
        config, params = self._config, request.params
        num_prompt = len(request.prompt_token_ids)
        most = config.max_request_tokens
        what = "this model's context" if config.max_model_len <= most else "the KV cache"
        if not num_prompt:
            raise InvalidRequestError("`prompt` must have at least one token, got 0", param="prompt")
        if params.n > config.max_num_seqs:
            raise InvalidRequestError(
                f"`n` must be at most {config.max_num_seqs}, the sequences that run at once, got {params.n}", param="n"
            )
        if num_prompt + 1 > most:
            raise ContextLengthError(num_requested_tokens=num_prompt + 1, max_tokens=most, what=what)
        if num_prompt + params.max_tokens <= most:
            return params.max_tokens
        if config.overflow == "truncate":
            return most - num_prompt
        raise ContextLengthError(
            num_requested_tokens=num_prompt + params.max_tokens,
            max_tokens=most,
            what=what,
            param="prompt + max_tokens",
        )
