"""Small models of transformers with random weights, their data and losses. Imported by tests and by workers."""

import functools

import torch
from torch import nn

VOCABULARY = 64
SMALL = {"vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "max_position_embeddings": 32, "head_dim": 8, "tie_word_embeddings": False}
EXPERTS = {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
FAMILIES = {"llama": {}, "mistral": {"sliding_window": 4}, "gemma3_text": {"sliding_window": 4}, "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4},
            "qwen3_moe": EXPERTS, "mixtral": EXPERTS, "gpt_oss": {**EXPERTS, "sliding_window": 4}}


def make(family, attention=None, seed=3):
    """With transformers' default attention, unless one is named."""
    import transformers

    torch.manual_seed(seed)
    config = transformers.AutoConfig.for_model(family, **{**SMALL, **FAMILIES[family]})
    return transformers.AutoModelForCausalLM.from_config(config, attn_implementation=attention).float().eval()


make_llama, make_qwen3_moe = (functools.partial(make, family) for family in ("llama", "qwen3_moe"))


def tokens(count=4):
    generator = torch.Generator().manual_seed(5)
    return [torch.randint(VOCABULARY, (2, 12), generator=generator) for _ in range(count)]


def losses(model, batch):
    """[N, T - 1] losses of the token that follows."""
    logits = model(input_ids=batch).logits[:, :-1]
    return nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten(), reduction="none").view(len(batch), -1)
