"""Stop strings: found across chunks, never shown, and nothing held back that can still not be one.

The rule: an output ends at the first character with which any stop string is complete; if several end there, the
longest counts. It needs no later text, so the result is the same however the text is cut into chunks.

Aho-Corasick automaton (Aho and Corasick, 1975): a state is the longest suffix of the text that begins some stop string,
which is exactly what must be held back.
"""

from dataclasses import dataclass
from functools import lru_cache

import msgspec

from engine.errors import InvalidRequestError


class StopResult(msgspec.Struct, frozen=True, gc=False):
    """What one piece of text led to.

    Attributes:
        text_to_emit: may go out now.
        matched: the stop string that is complete, None while none is.
    """

    text_to_emit: str
    matched: str | None = None


@dataclass(frozen=True, slots=True)
class _Automaton:
    """States are numbers, 0 the empty suffix.

    Attributes:
        next_states: per state, the explicit edges of the trie.
        fallback: per state, the state of its longest proper suffix that is one.
        depth: per state, how many characters it stands for.
        matched: per state, the longest stop string that is a suffix of it, "" for none.
    """

    next_states: tuple[dict[str, int], ...]
    fallback: tuple[int, ...]
    depth: tuple[int, ...]
    matched: tuple[str, ...]


@lru_cache(maxsize=64)
def _build(stop: tuple[str, ...]) -> _Automaton:
    edges: list[dict[str, int]] = [{}]
    depth, matched = [0], [""]
    for text in stop:
        state = 0
        for character in text:
            if character not in edges[state]:
                edges[state][character] = len(edges)
                edges.append({})
                depth.append(depth[state] + 1)
                matched.append("")
            state = edges[state][character]
        matched[state] = text
    fallback = [0] * len(edges)
    queue = list(edges[0].values())
    for state in queue:  # breadth first: fallbacks point to shallower states
        for character, child in edges[state].items():
            suffix = fallback[state]
            while suffix and character not in edges[suffix]:
                suffix = fallback[suffix]
            fallback[child] = edges[suffix].get(character, 0)
            matched[child] = matched[child] or matched[fallback[child]]
            queue.append(child)
    return _Automaton(tuple(edges), tuple(fallback), tuple(depth), tuple(matched))


class StopStringMatcher:
    """Watch one output's text for stop strings. Linear in the text, one instance per output.

    Args:
        stop: the stop strings; none empty. May be an empty tuple: then nothing is held back.
        include: the stop string itself is emitted too.

    Raises:
        InvalidRequestError: a stop string is empty.
    """

    def __init__(self, stop: tuple[str, ...], include: bool = False) -> None:
        if "" in stop:
            raise InvalidRequestError("`stop` strings must not be empty", param="stop")
        self._automaton = _build(stop)
        self._include = include
        self._state = 0
        self._held = ""

    @property
    def num_held_characters(self) -> int:
        return len(self._held)

    def push(self, text: str, *, armed: bool = True) -> StopResult:
        """Take the next text; after a match nothing more may be pushed.

        Args:
            armed: a stop string that is completed by this text counts. When False it is ordinary text, though a stop
                string may begin in it.
        """
        automaton, state = self._automaton, self._state
        edges, fallback, matched = automaton.next_states, automaton.fallback, automaton.matched
        for position, character in enumerate(text):
            while state and character not in edges[state]:
                state = fallback[state]
            state = edges[state].get(character, 0)
            if armed and matched[state]:
                found = matched[state]
                seen = self._held + text[: position + 1]
                self._held, self._state = "", 0
                return StopResult(seen if self._include else seen[: len(seen) - len(found)], found)
        # A complete stop string that doesn't count may be a dead end of the trie: then only a shorter suffix can
        # still become one.
        while state and not edges[state]:
            state = fallback[state]
        self._state = state
        seen = self._held + text
        cut = len(seen) - automaton.depth[state]
        self._held = seen[cut:]
        return StopResult(seen[:cut])

    def finish(self) -> str:
        """Return what was held back: the output ended for another reason."""
        held, self._held, self._state = self._held, "", 0
        return held
