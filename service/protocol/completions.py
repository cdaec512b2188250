"""The body of `POST /v1/completions`."""

from service.protocol.fields import GenerationFields, Integer


class CompletionRequest(GenerationFields):
    """A completion request after its shape was checked; `logprobs` counts alternatives, as the old API does."""

    prompt: str | list[str] | list[Integer] | list[list[Integer]]
    logprobs: Integer | None = None
    echo: bool = False
    best_of: Integer | None = None
    add_special_tokens: bool = True

    @property
    def prompts(self) -> list[str | list[int]]:
        """The prompts one by one: a text, or token ids that are taken as they are."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        token_ids = [item for item in self.prompt if isinstance(item, int)]
        return [token_ids] if token_ids else [item for item in self.prompt if not isinstance(item, int)]
