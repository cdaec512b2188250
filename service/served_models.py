"""Which names a request may give in `model`."""

from dataclasses import dataclass

from service.errors import ModelNotFoundError


@dataclass(frozen=True)
class ServedModels:
    """The served names, the default first; all mean the one loaded model."""

    names: tuple[str, ...]
    created: int

    def resolve(self, asked: str | None) -> str:
        """Return the name to answer with; no name means the default. Raises ModelNotFoundError."""
        if asked is None:
            return self.names[0]
        if asked not in self.names:
            raise ModelNotFoundError(asked, self.names)
        return asked
