"""TextAssembler: the text of one choice, from the ids that the engine sends."""

from collections.abc import Sequence

import msgspec

from engine.text.detokenizer import IncrementalDetokenizer
from engine.text.stop_strings import StopStringMatcher
from engine.text.tokenizer import Tokenizer


class TextDelta(msgspec.Struct, frozen=True, gc=False):
    """What a batch of tokens added.

    Attributes:
        text: may go to the client now.
        stopped: a stop string is complete; the choice ends here.
        stop_string: which, None while not stopped.
        num_tokens_used: output tokens so far, up to and including the one that completed the stop string; tokens after
            it don't count and their text is never seen.
        text_offsets: for each token of this batch that is used, where its text begins: characters of the output that
            earlier tokens completed.
    """

    text: str
    stopped: bool
    stop_string: str | None
    num_tokens_used: int
    text_offsets: tuple[int, ...]


class TextAssembler:
    """Turn the token ids of one choice into text: whole characters, cut at a stop string. One instance per choice.

    Args:
        stop: stop strings.
        include_stop: a stop string (and the text of a stop token) belongs to the output.
        skip_special_tokens: special tokens give no text.
        is_continuation: the output goes on after the prompt's text (completions), so a leading space stays.
        min_tokens: a stop string counts only if it is completed by a later token than these; it may begin in them
            (vLLM's rule).
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        stop: tuple[str, ...] = (),
        include_stop: bool = False,
        skip_special_tokens: bool = True,
        is_continuation: bool = False,
        min_tokens: int = 0,
    ) -> None:
        self._detokenizer = IncrementalDetokenizer(
            tokenizer, skip_special_tokens=skip_special_tokens, is_continuation=is_continuation
        )
        self._matcher = StopStringMatcher(stop, include_stop) if stop else None
        self._include_stop = include_stop
        self._min_tokens = min_tokens
        self._num_tokens = 0
        self._num_characters = 0
        self._is_stopped = False

    def push(self, token_ids: Sequence[int], *, ends_with_stop_token: bool = False) -> TextDelta:
        """Take the next tokens of the choice; nothing more may be pushed once it is stopped.

        Args:
            ends_with_stop_token: the last id ended the choice (end of sequence, `stop_token_ids`): it counts as a token
                but has no text, unless stops are included.
        """
        assert not self._is_stopped, "tokens after a stop string"
        if len(token_ids) == 1 and self._matcher is None and not ends_with_stop_token:  # nearly every call
            offset = self._num_characters
            text = self._detokenizer.push_one(token_ids[0])
            self._num_tokens += 1
            self._num_characters = offset + len(text)
            return TextDelta(text, False, None, self._num_tokens, (offset,))
        texts: list[str] = []
        offsets: list[int] = []
        silent = len(token_ids) - 1 if ends_with_stop_token and not self._include_stop else -1
        for position, token_id in enumerate(token_ids):
            self._num_tokens += 1
            offsets.append(self._num_characters)
            if position == silent:
                continue
            piece = self._detokenizer.push_one(token_id)
            if not piece:
                continue
            self._num_characters += len(piece)
            if self._matcher is None:
                texts.append(piece)
                continue
            result = self._matcher.push(piece, armed=self._num_tokens > self._min_tokens)
            texts.append(result.text_to_emit)
            if result.matched is not None:
                self._is_stopped = True
                return TextDelta("".join(texts), True, result.matched, self._num_tokens, tuple(offsets))
        return TextDelta("".join(texts), False, None, self._num_tokens, tuple(offsets))

    def finish(self) -> str:
        """Return the rest of the text: what was held back, and U+FFFD for an unfinished character.

        The same for every reason to end; empty after a stop string.
        """
        if self._is_stopped:
            return ""
        rest = self._detokenizer.finish()
        if self._matcher is None:
            return rest
        return self._matcher.push(rest, armed=False).text_to_emit + self._matcher.finish()
