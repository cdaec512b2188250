"""service/benchmark/roofline.py and engine/execution/step_demand.py: the least work of a step, and its share."""

from engine.execution.step_demand import StepDemand, step_demand
from service.benchmark.roofline import Ceilings, roofline_share
from tests.support.native import PACKABLE_SPEC, quantized_weights

LAYER = 96 * 64 + 2 * 32 * 64 + 64 * 96 + 3 * 96 * 64  # q; k and v; o; gate, up and down
VOCABULARY = 131 * 64
Q8_0_BYTES = 34 / 32
Q4_0_BYTES = 18 / 32


def test_step_demand_counts_each_matrix_once_and_logits_for_the_rows_that_need_them() -> None:
    found = step_demand(
        PACKABLE_SPEC, quantized_weights(PACKABLE_SPEC, "Q8_0"), num_tokens=10, num_logits=2, num_kv_tokens=100,
        kv_token_bytes=7,
    )  # fmt: skip
    assert found.operations == 2 * 10 * 3 * LAYER + 2 * 2 * VOCABULARY
    # The loader keeps an untied head's matrix apart from the embedding; both have the vocabulary's size.
    assert found.weight_bytes == Q8_0_BYTES * (3 * LAYER + VOCABULARY)
    assert (found.kv_bytes, found.num_bytes) == (700, 700 + found.weight_bytes)


def test_step_demand_without_logits_reads_no_vocabulary() -> None:
    found = step_demand(
        PACKABLE_SPEC, quantized_weights(PACKABLE_SPEC, "Q4_0"), num_tokens=1, num_logits=0, num_kv_tokens=0,
        kv_token_bytes=1,
    )  # fmt: skip
    assert (found.operations, found.num_bytes) == (2 * 3 * LAYER, Q4_0_BYTES * 3 * LAYER)


def test_roofline_share_is_that_of_the_ceiling_which_binds() -> None:
    ceilings = Ceilings(read_bytes_per_s=100.0, integer_ops_per_s=1000.0, instruction_set="avx2")
    decode = roofline_share(StepDemand(weight_bytes=40, kv_bytes=10, operations=50), 1.0, ceilings)
    assert (decode.bandwidth, decode.integer, decode.value, decode.binding) == (0.5, 0.05, 0.5, "bandwidth")
    prefill = roofline_share(StepDemand(weight_bytes=40, kv_bytes=10, operations=1600), 2.0, ceilings)
    assert (prefill.value, prefill.binding) == (0.8, "integer peak")
