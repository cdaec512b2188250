"""The body of `POST /v1/completions`."""

from service.protocol.fields import GenerationFields


class CompletionRequest(GenerationFields):
    """A completion request after its shape was checked; `logprobs` counts alternatives, as the old API does."""

    prompt: str | list[str] | list[int] | list[list[int]]
    logprobs: int | None = None
    echo: bool = False
    best_of: int | None = None
    add_special_tokens: bool = True

    @property
    def prompts(self) -> list[str | list[int]]:
        """The prompts one by one: a text, or token ids that are taken as they are."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        if self.prompt and isinstance(self.prompt[0], int):
            return [[token_id for token_id in self.prompt if isinstance(token_id, int)]]
        return [prompt for prompt in self.prompt if not isinstance(prompt, int)]
