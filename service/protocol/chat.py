"""The body of `POST /v1/chat/completions`."""

from typing import Any, Literal

from pydantic import Field

from service.protocol.fields import MAX_INTEGER, GenerationFields, WireModel


class TextPart(WireModel):
    """One piece of a message's content; pieces are joined in order with nothing between them."""

    type: Literal["text"]
    text: str


class FunctionCall(WireModel):
    """What a tool call of an earlier turn called."""

    name: str
    arguments: str | dict[str, Any] = ""


class ToolCall(WireModel):
    """A tool call of an earlier assistant turn, replayed to the template."""

    id: str | None = None
    type: Literal["function"] = "function"
    function: FunctionCall


class ChatMessage(WireModel):
    """One turn. Content null or absent is empty text; a refusal is replayed as nothing."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[TextPart] | None = None
    name: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None

    @property
    def text(self) -> str:
        if self.content is None:
            return ""
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content)


class ChatRequest(GenerationFields):
    """A chat request after its shape was checked."""

    messages: list[ChatMessage] = Field(min_length=1)
    logprobs: bool = False
    top_logprobs: int | None = Field(default=None, ge=0, le=MAX_INTEGER)
    echo: bool = False
    add_generation_prompt: bool | None = None
    continue_final_message: bool = False
    chat_template_kwargs: dict[str, Any] | None = None

    @property
    def opens_assistant_turn(self) -> bool:
        """Whether the prompt ends with the opening of an assistant turn: yes, unless the last message goes on."""
        return not self.continue_final_message if self.add_generation_prompt is None else self.add_generation_prompt
