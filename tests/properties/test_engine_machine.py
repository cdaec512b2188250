"""A state machine over scheduler, pool and prefix tree: random lives of an engine against a plain model.

The model is what each request gets when it runs alone (plain_model.py). After every rule: each choice's tokens are a
prefix of its solo output, the pool rebuilt from the events is the engine's own, every event kept the invariants of
the trace checker, and received = ended + in flight. At the end of an example everything is drained within a stated
number of steps and nothing is held.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from engine.events import (
    TERMINAL_EVENTS,
    BlockCopied,
    BlockEvicted,
    BlockPublished,
    BlockShared,
    CacheCleared,
    Event,
    PrefixLookup,
    RequestAborted,
    RequestEvent,
    RequestFailed,
    RequestPreempted,
    RequestResumed,
    RequestScheduled,
    Stalled,
)
from engine.execution.forward_batch import ForwardBatch
from engine.execution.simulated_executor import ScriptedFailureError, hashed_tokens
from engine.kv.block_hash import chain_hash
from engine.sampling_params import SamplingParams
from tests.support.plain_model import solo_output
from tests.support.scripted_engine import Choice, ScriptedEngine

NUM_STEPS_IN_CI = 20_000
VOCAB_SIZE = 29  # small, so that end-of-sequence and equal tokens come up by chance
FAMILIES = tuple([(family * 5 + place * 3) % 23 for place in range(40)] for family in range(3))


@dataclass(slots=True)
class Asked:
    """A request as the model knows it."""

    prompt: list[int]
    params: SamplingParams
    salt: str
    priority: int
    expected: list[tuple[list[int], str]]
    is_refused: bool
    is_ended_early: bool = False  # aborted or failed
    kept: dict[int, int] = field(default_factory=dict)  # choice -> tokens kept by a stop from outside


class FailNextCall:
    """A cue that fails one execute when armed."""

    def __init__(self) -> None:
        self.is_armed = False

    def __call__(self, call: int, batch: ForwardBatch) -> None:
        if self.is_armed:
            self.is_armed = False
            raise ScriptedFailureError(f"step {call} fails on cue")


class EngineMachine(RuleBasedStateMachine):
    """One example is one engine's life."""

    num_steps_of_all_examples = 0
    seen: ClassVar[Counter[str]] = Counter()

    engine: ScriptedEngine
    asked: dict[str, Asked]

    @initialize(
        pool_tokens=st.integers(40, 160),
        block_size=st.sampled_from([1, 2, 4, 8]),
        max_num_seqs=st.integers(1, 8),
        extra_budget=st.integers(0, 34),
        prefix_cache=st.sampled_from([True, True, True, False]),
        overflow=st.sampled_from(["reject", "truncate"]),
    )
    def start(
        self,
        pool_tokens: int,
        block_size: int,
        max_num_seqs: int,
        extra_budget: int,
        prefix_cache: bool,
        overflow: str,
    ) -> None:
        self.failure = FailNextCall()
        self.row_errors: dict[str, int] = {}
        self.asked = {}
        self.cached: dict[int, tuple[str, list[int]]] = {}  # tree block -> salt and all tokens up to its end
        self.num_seen_events = 0
        self.num_terminal: dict[str, int] = {}
        self.engine = ScriptedEngine(
            num_blocks=-(-pool_tokens // block_size),
            block_size=block_size,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_seqs + extra_budget,
            max_model_len=96,
            prefix_cache=prefix_cache,
            overflow=overflow,
            script=hashed_tokens(VOCAB_SIZE),
            cues=(self.failure,),
            row_errors=self.row_errors,
        )

    # --- rules ---------------------------------------------------------------------------------------------------

    @rule(
        family=st.sampled_from(FAMILIES),
        tails=st.lists(
            st.tuples(st.integers(0, 40), st.lists(st.integers(0, 22), min_size=1, max_size=12)), min_size=1, max_size=6
        ),
        max_tokens=st.integers(1, 24),
        n=st.sampled_from([1, 1, 1, 2, 3]),
        priority=st.sampled_from([0, 0, 0, 1, -1]),
        salt=st.sampled_from(["", "", "", "s"]),
        ignore_eos=st.booleans(),
    )
    def add(
        self,
        family: list[int],
        tails: list[tuple[int, list[int]]],
        max_tokens: int,
        n: int,
        priority: int,
        salt: str,
        ignore_eos: bool,
    ) -> None:
        """Add requests that share beginnings of different lengths and then part."""
        params = SamplingParams(max_tokens=max_tokens, n=n, ignore_eos=ignore_eos)
        for num_shared, tail in tails:
            self._ask(family[:num_shared] + tail, params, priority=priority, salt=salt)

    @precondition(lambda self: self.asked)
    @rule(data=st.data(), tail=st.lists(st.integers(0, 22), max_size=6), max_tokens=st.integers(1, 8))
    def add_next_turn(self, data: st.DataObject, tail: list[int], max_tokens: int) -> None:
        """Go on from what a choice has said so far; with an empty tail, the same prompt again."""
        name = data.draw(st.sampled_from(sorted(self.asked)))
        said = self.engine.outputs.get((name, 0), []) if tail else []
        asked = self.asked[name]
        self._ask(asked.prompt + said + tail, SamplingParams(max_tokens=max_tokens), priority=0, salt=asked.salt)

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.asked)))
        if not self._has_ended(name):
            self.asked[name].is_ended_early = True
        self.engine.abort(name)

    @precondition(lambda self: any(choice not in self.engine.ends for choice in self.engine.outputs))
    @rule(data=st.data())
    def stop_from_outside(self, data: st.DataObject) -> None:
        going = sorted(choice for choice in self.engine.outputs if choice not in self.engine.ends)
        name, index = data.draw(st.sampled_from(going))
        num_tokens = len(self.engine.outputs[name, index])
        if num_tokens:
            self.asked[name].kept[index] = data.draw(st.integers(0, num_tokens))
            self.engine.stop_choice(name, index, self.asked[name].kept[index])

    @rule(data=st.data(), trouble=st.sampled_from(["reset", "row", "step", "none", "none", "none"]))
    def meet_trouble(self, data: st.DataObject, trouble: str) -> None:
        """Reset the prefix cache, fail a step, or fail one row of one request."""
        if trouble == "reset":
            self.engine.reset_prefix_cache()
            assert self.engine.blocks.counts.cached == 0
        elif trouble == "step" and self.engine.core.has_work:
            self._fail_step()
        elif trouble == "row" and self.asked:
            self.row_errors[data.draw(st.sampled_from(sorted(self.asked)))] = data.draw(st.integers(0, 6))

    @precondition(lambda self: self.engine.core.has_work)
    @rule(num_steps=st.integers(1, 60))
    def step(self, num_steps: int) -> None:
        for _ in range(num_steps):
            if self.engine.core.has_work:
                self._step()
                self.engine.check_between_steps()

    # --- invariants ----------------------------------------------------------------------------------------------

    @invariant()
    def bookkeeping_is_sound(self) -> None:
        if hasattr(self, "engine"):
            self.engine.check_between_steps()
            self._read_events()
            num_ended = sum(self._has_ended(name) for name in self.asked)
            assert sum(self.num_terminal.values()) == num_ended
            assert (num_ended < len(self.asked)) == self.engine.core.has_work

    @invariant()
    def every_choice_has_a_prefix_of_its_solo_output(self) -> None:
        if hasattr(self, "engine"):
            for choice, tokens in self.engine.outputs.items():
                self._check_choice(choice, tokens)

    def teardown(self) -> None:
        """Drain: every sequence needs at most its tokens in steps of one, and may lose them all eight times."""
        if not hasattr(self, "engine"):
            return
        in_flight = [asked for name, asked in self.asked.items() if not self._has_ended(name)]
        most = sum(asked.params.n * 9 * (len(asked.prompt) + asked.params.max_tokens) for asked in in_flight)
        for _ in range(most):
            if not self.engine.core.has_work:
                break
            self._step()
        self.bookkeeping_is_sound()
        self.every_choice_has_a_prefix_of_its_solo_output()
        report = self.engine.check_at_rest()
        EngineMachine.seen["futile resumes"] += report.num_futile_resumes
        for name, asked in self.asked.items():
            assert self.num_terminal[name] == 1
            for index in range(asked.params.n):
                assert (name, index) in self.engine.ends
        EngineMachine.num_steps_of_all_examples += self.engine.num_steps
        EngineMachine.seen.update(type(event).__name__ for event in self.engine.events)

    # --- the model -----------------------------------------------------------------------------------------------

    def _ask(self, prompt: list[int], params: SamplingParams, *, priority: int, salt: str) -> None:
        config, n = self.engine.config, params.n
        most = config.max_request_tokens
        num_needed = len(prompt) + (params.max_tokens if config.overflow == "reject" else 1)
        is_refused = num_needed > most or len(prompt) + 1 > most or n > config.max_num_seqs
        name = f"r{len(self.asked):03}"
        self.asked[name] = Asked(
            prompt=prompt,
            params=params,
            salt=salt,
            priority=priority,
            expected=[
                solo_output(prompt, params, index=index, vocab_size=VOCAB_SIZE, max_total_tokens=most)
                for index in range(n)
            ]
            if not is_refused
            else [],
            is_refused=is_refused,
        )
        self.engine.add(prompt, request_id=name, priority=priority, salt=salt, params=params)
        if is_refused:
            assert {self.engine.ends[name, index] for index in range(n)} == {"error"}

    def _fail_step(self) -> None:
        self.failure.is_armed = True
        in_flight = [name for name in self.asked if not self._has_ended(name)]
        try:
            self.engine.step()
        except ScriptedFailureError:
            for name in in_flight:
                self.asked[name].is_ended_early = True
                assert "fails on cue" in self.engine.errors[name]
        self.failure.is_armed = False

    def _step(self) -> None:
        running = self.engine.scheduler.running
        oldest, num_computed = (running[0], running[0].num_computed_tokens) if running else (None, 0)
        before = len(self.engine.events)
        self.engine.step()
        new = self.engine.events[before:]
        assert not any(isinstance(event, Stalled) for event in new), new
        if oldest is not None and (oldest.request_id, oldest.index) not in self.engine.ends:
            newcomers = [event.request_id for event in new if isinstance(event, RequestScheduled | RequestResumed)]
            assert oldest.num_computed_tokens > num_computed or any(
                self.asked[name].priority < oldest.request.priority for name in newcomers
            ), f"{oldest} stood still"
        for name in self.engine.errors:
            if not self.asked[name].is_refused:
                assert name in self.row_errors or self.asked[name].is_ended_early
                self.asked[name].is_ended_early = True

    def _has_ended(self, name: str) -> bool:
        return all((name, index) in self.engine.ends for index in range(self.asked[name].params.n))

    def _check_choice(self, choice: Choice, tokens: list[int]) -> None:
        name, index = choice
        asked = self.asked[name]
        if asked.is_refused:
            assert tokens == []
            return
        expected, finish_reason = asked.expected[index]
        assert tokens == expected[: len(tokens)], choice
        end = self.engine.ends.get(choice)
        if end is None or (asked.is_ended_early and end in ("abort", "error")):
            return
        if index in asked.kept:
            assert end == "stop"
        else:
            assert (tokens, end) == (expected, finish_reason), choice

    def _read_events(self) -> None:
        """Count terminal events, and see that blocks are shared within their salt only."""
        for event in self.engine.events[self.num_seen_events :]:
            self._read_event(event)
        self.num_seen_events = len(self.engine.events)

    def _read_event(self, event: Event) -> None:
        if isinstance(event, TERMINAL_EVENTS):
            assert isinstance(event, RequestEvent)
            self.num_terminal[event.request_id] = self.num_terminal.get(event.request_id, 0) + 1
            assert self.num_terminal[event.request_id] == 1, event
        elif isinstance(event, BlockPublished):
            self.cached[event.block_id] = (self.asked[event.request_id].salt, self._published_tokens(event))
        elif isinstance(event, BlockEvicted):
            self.cached.pop(event.block_id, None)
        elif isinstance(event, CacheCleared):
            self.cached.clear()
        elif isinstance(event, BlockShared) and event.index == 0:
            assert self.cached[event.block_id][0] == self.asked[event.request_id].salt, event
        elif isinstance(event, PrefixLookup):
            self._check_lookup(event)

    def _published_tokens(self, event: BlockPublished) -> list[int]:
        """Return all tokens up to the end of a published block: those of the choice whose hash is the block's."""
        asked, size = self.asked[event.request_id], self.engine.config.block_size
        start = len(self.cached[event.parent_block_id][1]) if event.parent_block_id >= 0 else 0
        for index in range(asked.params.n):
            tokens = asked.prompt + self.engine.outputs.get((event.request_id, index), [])
            if chain_hash(event.parent_hash, tokens[start : start + size]) == event.block_hash:
                return tokens[: start + size]
        raise AssertionError(f"{event}: no choice has these tokens")

    def _check_lookup(self, event: PrefixLookup) -> None:
        """Nothing shareable is missed: the match is the longest beginning in the tree, but for the last token.

        The block in which it ends may be left out where there is no room for a copy of it.
        """
        asked, size = self.asked[event.request_id], self.engine.config.block_size
        if not self.engine.config.prefix_cache:
            assert (event.num_matched_tokens, event.why) == (0, "disabled")
            return
        longest = max(
            (num_common(asked.prompt[:-1], tokens) for salt, tokens in self.cached.values() if salt == asked.salt),
            default=0,
        )
        EngineMachine.seen["lookups"] += 1
        EngineMachine.seen["lookups with the longest match"] += event.num_matched_tokens == longest
        assert event.num_matched_tokens in (longest, longest // size * size), event


def num_common(a: list[int], b: list[int]) -> int:
    """Return how many leading tokens two lists share."""
    return next((place for place, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_engine_in_twenty_thousand_random_steps_keeps_every_invariant() -> None:
    """Rounds of 40 lives with a fixed seed each, the same in every run; a failure prints the shortest that shows it."""
    EngineMachine.num_steps_of_all_examples = 0
    EngineMachine.seen.clear()
    number = 0
    while EngineMachine.num_steps_of_all_examples < NUM_STEPS_IN_CI:
        number += 1
        print(f"seed {number}")  # noqa: T201
        run_state_machine_as_test(
            seed(number)(EngineMachine),
            settings=settings(
                database=None,
                deadline=None,
                max_examples=40,
                stateful_step_count=40,
                phases=(Phase.generate, Phase.shrink),
                suppress_health_check=list(HealthCheck),
            ),
        )
    print(f"{EngineMachine.num_steps_of_all_examples} engine steps, {dict(EngineMachine.seen)}")  # noqa: T201
    assert number <= 20, "the lives have become too short to mean anything"
    assert EngineMachine.seen["futile resumes"] == 0
    assert EngineMachine.seen["lookups with the longest match"] > 0.95 * EngineMachine.seen["lookups"]
    for kind in (RequestPreempted, RequestResumed, BlockCopied, BlockEvicted, RequestFailed, RequestAborted):
        assert EngineMachine.seen[kind.__name__] >= 100, f"the examples say too little about {kind}"
