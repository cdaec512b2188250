"""A hash cut to three bits: nobody may get another prompt's KV, and nobody may wait for ever."""

import pytest

from engine.kv.block_hash import chain_hash
from engine.sampling_params import SamplingParams
from tests.support.plain_model import distinct_tokens, solo_output
from tests.support.scripted_engine import ScriptedEngine

GREEDY = SamplingParams(max_tokens=3, ignore_eos=True)


@pytest.mark.parametrize("num_rounds", [1, 2])
def test_colliding_hashes_give_the_answers_of_a_run_without_cache(
    num_rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "engine.kv.publishing.chain_hash", lambda parent, tokens: f"{int(chain_hash(parent, tokens), 16) % 8}"
    )
    engine = ScriptedEngine(num_blocks=200, block_size=4, max_num_seqs=16, check_every_event=False)
    prompts = [distinct_tokens(12, salt=salt) for salt in range(50)]
    for _ in range(num_rounds):
        names = [engine.add(prompt, params=GREEDY) for prompt in prompts]
        engine.run(max_steps=200)
        for name, prompt in zip(names, prompts, strict=True):
            assert engine.outputs[name, 0] == solo_output(prompt, GREEDY)[0]
    engine.blocks.check_invariants([])
