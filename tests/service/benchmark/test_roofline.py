"""service/benchmark/roofline.py and engine/execution/step_demand.py: the least work of a step, and its share."""

from engine.execution.step_demand import StepDemand, step_demand
from engine.model.weights import WeightTensor
from service.benchmark.roofline import Ceilings, roofline_share
from tests.support.native import PACKABLE_SPEC, quantized_weights

LAYER = 96 * 64 + 2 * 32 * 64 + 64 * 96 + 3 * 96 * 64  # q; k and v; o; gate, up and down
VOCABULARY = 131 * 64
Q8_0_BYTES = 34 / 32
Q4_0_BYTES = 18 / 32


def in_floats(tensor: WeightTensor) -> bool:
    return tensor.encoding in ("F32", "F16", "BF16")


CEILINGS = Ceilings(
    read_bytes_per_s=100.0,
    integer_ops_per_s=1000.0,
    bfloat16_ops_per_s=200.0,
    instruction_set="avx512",
    bfloat16_instruction="vdpbf16ps",
)


def test_step_demand_counts_each_matrix_once_and_logits_for_the_rows_that_need_them() -> None:
    found = step_demand(
        PACKABLE_SPEC, quantized_weights(PACKABLE_SPEC, "Q8_0"), num_tokens=10, num_logits=2, num_kv_tokens=100,
        kv_token_bytes=7, in_floats=in_floats,
    )  # fmt: skip
    assert found.float_operations == 0
    assert found.operations == 2 * 10 * 3 * LAYER + 2 * 2 * VOCABULARY
    # The loader keeps an untied head's matrix apart from the embedding; both have the vocabulary's size.
    assert found.weight_bytes == Q8_0_BYTES * (3 * LAYER + VOCABULARY)
    assert (found.kv_bytes, found.num_bytes) == (700, 700 + found.weight_bytes)


def test_step_demand_without_logits_reads_no_vocabulary() -> None:
    found = step_demand(
        PACKABLE_SPEC, quantized_weights(PACKABLE_SPEC, "Q4_0"), num_tokens=1, num_logits=0, num_kv_tokens=0,
        kv_token_bytes=1, in_floats=in_floats,
    )  # fmt: skip
    assert (found.operations, found.num_bytes) == (2 * 3 * LAYER, Q4_0_BYTES * 3 * LAYER)


def test_step_demand_of_matrices_in_floats_is_all_float_operations() -> None:
    found = step_demand(
        PACKABLE_SPEC, quantized_weights(PACKABLE_SPEC, "BF16"), num_tokens=10, num_logits=2, num_kv_tokens=0,
        kv_token_bytes=1, in_floats=in_floats,
    )  # fmt: skip
    assert found.operations == found.float_operations == 2 * 10 * 3 * LAYER + 2 * 2 * VOCABULARY


def test_roofline_share_is_that_of_the_ceiling_which_binds() -> None:
    decode = roofline_share(StepDemand(weight_bytes=40, kv_bytes=10, operations=50, float_operations=0), 1.0, CEILINGS)
    assert (decode.bandwidth, decode.integer, decode.value, decode.binding) == (0.5, 0.05, 0.5, "bandwidth")
    prefill = roofline_share(
        StepDemand(weight_bytes=40, kv_bytes=10, operations=1600, float_operations=0), 2.0, CEILINGS
    )
    assert (prefill.value, prefill.bfloat16, prefill.binding) == (0.8, 0.0, "integer peak")


def test_roofline_share_of_products_in_floats_is_against_the_bfloat16_peak() -> None:
    demand = StepDemand(weight_bytes=40, kv_bytes=10, operations=300, float_operations=300)
    share = roofline_share(demand, 2.0, CEILINGS)
    assert (share.integer, share.bfloat16, share.value, share.binding) == (0.0, 0.75, 0.75, "bfloat16 peak")


def test_roofline_shares_of_both_kinds_of_products_add_up() -> None:
    demand = StepDemand(weight_bytes=40, kv_bytes=10, operations=800, float_operations=100)
    share = roofline_share(demand, 1.0, CEILINGS)
    assert (share.integer, share.bfloat16, share.value) == (0.7, 0.5, 1.2)
    assert share.binding == "integer peak"
