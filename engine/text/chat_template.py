"""ChatTemplate: a conversation to the ids of a prompt, by the model's own Jinja template.

Only the template can write control tokens (ControlGuard); it runs in a sandbox with limits (TemplateEnvironment). A
rendering may take a while: call it off the event loop. Thread-safe.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jinja2 import Template
from jinja2.exceptions import TemplateError, TemplateSyntaxError

from engine.clock import Clock, SystemClock
from engine.errors import InvalidRequestError, ModelLoadError
from engine.model.tokenizer_source import GgufTokenizerSource, HuggingFaceTokenizerSource, TokenizerSource
from engine.text.control_guard import ControlGuard
from engine.text.template_budget import (
    CURRENT_BUDGET,
    TemplateBudget,
    TemplateBudgetExceededError,
    TemplateLimits,
)
from engine.text.template_environment import TemplateEnvironment, TemplateRaisedError
from engine.text.template_messages import plain_data, template_messages
from engine.text.tokenizer import Tokenizer

_MAX_TEMPLATE_CHARS = 1_000_000
# Marks the end of the message to be continued. A lone surrogate like the stand-ins: no text from outside holds it. The
# space tells whether the template trims contents.
_CONTINUE_HERE = "\udfff"
_RESERVED = frozenset(
    {
        "chat_template",
        "messages",
        "tools",
        "add_generation_prompt",
        "continue_final_message",
        "tokenize",
        "raise_exception",
        "strftime_now",
        "namespace",
        "range",
        "dict",
        "self",
        "loop",
        "caller",
        "varargs",
        "kwargs",
    }
)
# What a template's own faults, met with some conversation, look like in Python.
_TEMPLATE_FAULTS = (
    TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)


class ChatTemplate:
    """Render and encode conversations. The template is compiled once.

    Args:
        source: gives the template and the texts of its special tokens.
        tokenizer: built from the same source.
        template: Jinja source that the operator sets instead of the model's; never a request's.
        limits: of one rendering.
        clock: for the time limit and `strftime_now`.

    Raises:
        ModelLoadError: the template isn't valid Jinja, or is huge.
    """

    def __init__(
        self,
        source: TokenizerSource,
        tokenizer: Tokenizer,
        *,
        template: str | None = None,
        limits: TemplateLimits | None = None,
        clock: Clock | None = None,
    ) -> None:
        text = template if template is not None else source.chat_template
        self._tokenizer = tokenizer
        self._limits = limits or TemplateLimits()
        self._clock = clock or SystemClock()
        self._special_texts = _special_texts(source, tokenizer)
        self.text = text
        markup = {
            literal: token_id
            for literal, token_id in tokenizer.user_defined_literals.items()
            if text is not None and _is_markup(literal) and literal in text
        }
        self._as_text = frozenset(markup)
        self._guard = ControlGuard(tokenizer.control_literals | markup)
        self._template = None if text is None else self._compile(text)

    def render_ids(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        kwargs: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """Return the prompt's ids, with exactly one BOS where the model wants one.

        Args:
            messages: plain data, as in the request. A `developer` is a `system` where the template doesn't know it.
            tools: JSON descriptions of functions.
            add_generation_prompt: end with the opening of an assistant turn.
            continue_final_message: leave the last message open, so that the output goes on in it.
            kwargs: further variables for the template (`chat_template_kwargs`).

        Raises:
            InvalidRequestError: the model has no template, the template refuses the conversation or costs too much, or
                an argument is malformed.
        """
        rendered = self._render(messages, tools, add_generation_prompt, continue_final_message, kwargs or {})
        ids = self._tokenizer.encode_segments(self._guard.segments(rendered), as_text=self._as_text)
        bos_id = self._tokenizer.bos_token_id
        if self._tokenizer.adds_bos and bos_id is not None and ids[:1] != [bos_id]:
            return [bos_id, *ids]
        return ids

    def render_text(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        kwargs: Mapping[str, Any] | None = None,
    ) -> str:
        """Return the prompt as text, for people: literals of a user and of the template look alike in it."""
        rendered = self._render(messages, tools, add_generation_prompt, continue_final_message, kwargs or {})
        return self._guard.restore(rendered)

    def _compile(self, text: str) -> Template:
        if len(text) > _MAX_TEMPLATE_CHARS:
            raise ModelLoadError(
                f"the chat template must have at most {_MAX_TEMPLATE_CHARS} characters, has {len(text)}"
            )
        try:
            return TemplateEnvironment(self._guard, self._clock).from_string(text)
        except TemplateSyntaxError as error:
            raise ModelLoadError(
                f"the chat template must be valid Jinja, line {error.lineno}: {error.message}"
            ) from error
        except (TemplateError, RecursionError, SyntaxError, ValueError) as error:
            raise ModelLoadError(f"the chat template can't be compiled: {error}") from error

    def _render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        add_generation_prompt: bool,
        continue_final_message: bool,
        kwargs: Mapping[str, Any],
    ) -> str:
        if self._template is None:
            raise InvalidRequestError("`messages` can't be rendered: this model has no chat template", param="messages")
        protect = self._guard.protect
        variables = self._variables(kwargs)
        conversation = template_messages(messages, protect)
        self._rename_developer(conversation)
        if continue_final_message:
            if add_generation_prompt:
                raise InvalidRequestError(
                    "`continue_final_message` excludes `add_generation_prompt`, got true for both",
                    param="continue_final_message",
                )
            conversation[-1]["content"] += _CONTINUE_HERE + " "
        with self._faults_named():
            rendered = self._run(
                self._template,
                {
                    **self._special_texts,
                    **variables,
                    "messages": conversation,
                    "tools": plain_data(list(tools), protect, param="tools") if tools else None,
                    "add_generation_prompt": add_generation_prompt,
                },
            )
        return _cut_at_continuation(rendered) if continue_final_message else rendered

    def _rename_developer(self, conversation: list[dict[str, Any]]) -> None:
        """Call a developer message a system message for templates that don't know the newer name."""
        if self.text is None or "developer" in self.text:
            return
        for message in conversation:
            if message["role"] == "developer":
                message["role"] = "system"

    def _variables(self, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        for name in kwargs:
            if name in _RESERVED or name in self._special_texts or name.startswith("_"):
                raise InvalidRequestError(
                    f"`chat_template_kwargs` must not set `{name}`", param=f"chat_template_kwargs.{name}"
                )
        plain = plain_data(dict(kwargs), self._guard.protect, param="chat_template_kwargs")
        assert isinstance(plain, dict)
        return plain

    def _run(self, template: Template, variables: dict[str, Any]) -> str:
        budget = TemplateBudget(self._limits, self._clock)
        token = CURRENT_BUDGET.set(budget)
        try:
            pieces: list[str] = []
            for piece in template.generate(variables):
                budget.output(len(piece))
                pieces.append(piece)
            return "".join(pieces)
        finally:
            CURRENT_BUDGET.reset(token)

    @contextlib.contextmanager
    def _faults_named(self) -> Iterator[None]:
        try:
            yield
        except TemplateBudgetExceededError as error:
            raise InvalidRequestError(
                f"`messages` can't be rendered by this model's chat template: {error}", param="messages"
            ) from error
        except TemplateRaisedError as error:
            raise InvalidRequestError(
                f"`messages` are refused by this model's chat template: {error.message}", param="messages"
            ) from error
        except _TEMPLATE_FAULTS as error:
            raise InvalidRequestError(
                f"`messages` can't be rendered by this model's chat template: {type(error).__name__}: {error}",
                param="messages",
            ) from error


def _is_markup(literal: str) -> bool:
    """Return whether a user-defined token reads like a mark (`<think>`), not like text (a run of spaces)."""
    return len(literal) > 2 and not any(c.isspace() for c in literal) and not literal.isalnum()


def _special_texts(source: TokenizerSource, tokenizer: Tokenizer) -> dict[str, str]:
    """Return the variables `bos_token` and so on; "" for a token that the model doesn't have."""

    def text(token_id: int | None) -> str:
        return "" if token_id is None else tokenizer.token_text(token_id)

    first_eos = source.eos_ids[0] if source.eos_ids else None
    match source:
        case HuggingFaceTokenizerSource():
            return {
                "bos_token": source.bos_token or text(source.bos_id),
                "eos_token": source.eos_token or text(first_eos),
                "unk_token": source.unk_token or "",
                "pad_token": source.pad_token or "",
            }
        case GgufTokenizerSource():
            return {
                "bos_token": text(source.bos_id),
                "eos_token": text(first_eos),
                "unk_token": text(source.unk_id),
                "pad_token": text(source.pad_id),
            }
    return {"bos_token": text(source.bos_id), "eos_token": text(first_eos), "unk_token": "", "pad_token": ""}


def _cut_at_continuation(rendered: str) -> str:
    position = rendered.rfind(_CONTINUE_HERE)
    if position < 0:
        raise InvalidRequestError(
            "`continue_final_message` needs a chat template that shows the last message's content; this one doesn't",
            param="continue_final_message",
        )
    keeps_spaces = rendered.startswith(_CONTINUE_HERE + " ", position)
    return rendered[:position] if keeps_spaces else rendered[:position].rstrip()
