"""A LoadedModel as a transformers model: the outside opinion on names, shapes and order of the weights."""

import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from engine.model.load import LoadedModel

CLASSES = {
    "llama": (LlamaConfig, LlamaForCausalLM),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM),
}
NAMES = {
    "embed": "model.embed_tokens",
    "final_norm": "model.norm",
    "head": "lm_head",
    "attn_norm": "input_layernorm",
    "mlp_norm": "post_attention_layernorm",
    **{part: f"self_attn.{part}_proj" for part in "qkvo"},
    **{part: f"self_attn.{part}" for part in ("q_norm", "k_norm")},
    **{part: f"mlp.{part}_proj" for part in ("gate", "up", "down")},
}


def transformers_model(model: LoadedModel) -> PreTrainedModel:
    """Return the same model in transformers, float32, eager attention."""
    spec = model.spec
    config_class, model_class = CLASSES[spec.architecture]
    config = config_class(
        vocab_size=spec.vocab_size,
        hidden_size=spec.hidden_size,
        intermediate_size=spec.intermediate_size,
        num_hidden_layers=spec.num_layers,
        num_attention_heads=spec.num_heads,
        num_key_value_heads=spec.num_kv_heads,
        head_dim=spec.head_dim,
        max_position_embeddings=spec.max_position_embeddings,
        rope_parameters={"rope_type": "default", "rope_theta": spec.rope_theta},
        rms_norm_eps=spec.norm_eps,
        tie_word_embeddings=spec.tie_word_embeddings,
        attn_implementation="eager",
    )
    result = model_class(config).eval()
    state = {_name(name): torch.from_numpy(weight.to_float32()) for name, weight in model.weights.items()}
    if spec.tie_word_embeddings:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    result.load_state_dict(state, strict=True)
    return result


def greedy(model: PreTrainedModel, prompt_ids: list[int], *, num_tokens: int) -> tuple[list[int], list[float]]:
    """Return greedy tokens and, for each, the margin between the best two logits."""
    ids, margins = list(prompt_ids), []
    with torch.no_grad():
        for _ in range(num_tokens):
            best = model(torch.tensor([ids])).logits[0, -1].topk(2)
            margins.append(float(best.values[0] - best.values[1]))
            ids.append(int(best.indices[0]))
    return ids[len(prompt_ids) :], margins


def _name(name: str) -> str:
    *front, kind = name.split(".")
    if front[0] == "layers":
        return f"model.layers.{front[1]}.{NAMES[front[2]]}.{kind}"
    return f"{NAMES[front[0]]}.{kind}"
