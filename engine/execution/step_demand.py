"""What a step can't do without: the bytes it must read and the multiplications it must do, whatever computes it."""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from engine.model.spec import DecoderSpec
from engine.model.weights import Weights, WeightTensor


@dataclass(frozen=True, slots=True)
class StepDemand:
    """The least work of one step.

    Attributes:
        weight_bytes: of the matrices, each once, as the file has them; the embedding's few rows don't count.
        kv_bytes: keys and values of the tokens that are attended to.
        operations: of the matrices, a multiplication and its addition being two; attention's own don't count.
        float_operations: those of them that are done in floats.
    """

    weight_bytes: int
    kv_bytes: int
    operations: int
    float_operations: int

    @property
    def num_bytes(self) -> int:
        return self.weight_bytes + self.kv_bytes


def step_demand(
    spec: DecoderSpec,
    weights: Weights,
    *,
    num_tokens: int,
    num_logits: int,
    num_kv_tokens: int,
    kv_token_bytes: int,
    in_floats: Callable[[WeightTensor], bool],
) -> StepDemand:
    """Return what a step needs.

    Args:
        num_tokens: rows of the forward pass.
        num_logits: rows that need logits.
        num_kv_tokens: tokens attended to, summed over the sequences.
        kv_token_bytes: of one token's keys and values in all layers.
        in_floats: whether a matrix is multiplied in floats; others are in integers.
    """
    matrices = [tensor for name, tensor in weights.items() if name.startswith("layers.") and len(tensor.shape) == 2]
    vocabulary = weights["embed.weight" if spec.tie_word_embeddings else "head.weight"]
    products = [(matrix, 2 * num_tokens * prod(matrix.shape)) for matrix in matrices]
    products.append((vocabulary, 2 * num_logits * prod(vocabulary.shape)))
    return StepDemand(
        weight_bytes=sum(matrix.num_bytes for matrix in matrices) + (vocabulary.num_bytes if num_logits else 0),
        kv_bytes=num_kv_tokens * kv_token_bytes,
        operations=sum(operations for _, operations in products),
        float_operations=sum(operations for matrix, operations in products if in_floats(matrix)),
    )
