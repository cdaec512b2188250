"""Prompts to token ids: template and tokenizer, run on a few threads so that they never hold up the event loop."""

import codecs
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import anyio
import anyio.to_thread

from engine.errors import InvalidRequestError
from engine.text.chat_template import ChatTemplate
from engine.text.tokenizer import Tokenizer
from service.protocol.chat import ChatRequest
from service.protocol.completion_answer import EchoedPrompt

T = TypeVar("T")
RawPrompt = str | list[int]


class PromptEncoder:
    """Encodes what clients write.

    Args:
        tokenizer: of the loaded model.
        template: its chat template.
        num_threads: encodings at once; more wait, so that a flood of them can't take every core.
    """

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate, *, num_threads: int) -> None:
        self.tokenizer = tokenizer
        self._template = template
        self._threads = anyio.CapacityLimiter(num_threads)

    async def chat(self, request: ChatRequest) -> list[int]:
        """Return the ids of a conversation. Raises InvalidRequestError: the template refuses it."""
        return await self._run(partial(self._chat, request))

    async def raw(self, text: str, *, add_special: bool) -> list[int]:
        """Return the ids of a text, maybe none."""
        return await self._run(partial(self.tokenizer.encode, text, add_special=add_special))

    async def texts(
        self, prompts: Sequence[RawPrompt], *, add_special: bool, vocab_size: int, echo: bool
    ) -> list[EchoedPrompt]:
        """Return each prompt's ids, and with `echo` its text and where in it each token begins.

        Raises:
            InvalidRequestError: an empty prompt, or an id out of range.
        """
        return await self._run(partial(self._texts, prompts, add_special, vocab_size, echo))

    async def bad_words(self, words: Sequence[str]) -> list[list[int]]:
        """Return the token sequences that spell the words, at the start of a text and after a space."""
        if not words:
            return []
        return await self._run(partial(self._bad_words, words))

    async def decode(self, ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        """Return the text of `ids`, each in range."""
        return await self._run(partial(self.tokenizer.decode, ids, skip_special_tokens=skip_special_tokens))

    async def _run(self, work: Callable[[], T]) -> T:
        return await anyio.to_thread.run_sync(work, limiter=self._threads, abandon_on_cancel=True)

    def _chat(self, request: ChatRequest) -> list[int]:
        ids = self._template.render_ids(
            [message.model_dump(exclude_none=True) for message in request.messages],
            add_generation_prompt=request.opens_assistant_turn,
            continue_final_message=request.continue_final_message,
            kwargs=request.chat_template_kwargs or {},
        )
        if not ids:
            raise InvalidRequestError("`messages` give an empty prompt with this model's template", param="messages")
        return ids

    def _texts(
        self, prompts: Sequence[RawPrompt], add_special: bool, vocab_size: int, echo: bool
    ) -> list[EchoedPrompt]:
        encoded = []
        for index, prompt in enumerate(prompts):
            param = "prompt" if len(prompts) == 1 else f"prompt[{index}]"
            if isinstance(prompt, str):
                ids = self.tokenizer.encode(prompt, add_special=add_special)
            else:
                ids = prompt
                check_token_ids(ids, param=param, vocab_size=vocab_size)
            if not ids:
                raise InvalidRequestError(f"`{param}` must give at least one token, got none", param=param)
            encoded.append(self._echoed(ids, prompt) if echo else EchoedPrompt(ids))
        return encoded

    def _echoed(self, ids: Sequence[int], prompt: RawPrompt) -> EchoedPrompt:
        """Find where each token's text begins; special tokens have none of it."""
        tokenizer = self.tokenizer
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        pieces: list[str] = []
        offsets: list[int] = []
        num_characters = 0
        for token_id in ids:
            offsets.append(num_characters)
            if not tokenizer.is_special(token_id):
                pieces.append(decoder.decode(tokenizer.token_bytes(token_id)))
                num_characters += len(pieces[-1])
        text = prompt if isinstance(prompt, str) else "".join(pieces) + decoder.decode(b"", final=True)
        return EchoedPrompt(ids, text, offsets)

    def _bad_words(self, words: Sequence[str]) -> list[list[int]]:
        spelled = []
        for word in words:
            for text in (word, " " + word.lstrip()):
                ids = self.tokenizer.encode(text, add_special=False)
                if ids and ids not in spelled:
                    spelled.append(ids)
        return spelled


def check_token_ids(ids: Sequence[int], *, param: str, vocab_size: int) -> None:
    """Raise InvalidRequestError unless every id lies in 0..vocab_size-1."""
    if not ids:
        return
    for extreme in (min(ids), max(ids)):
        if not 0 <= extreme < vocab_size:
            raise InvalidRequestError(
                f"`{param}` token ids must lie in 0..{vocab_size - 1}, got {extreme}", param=param
            )
