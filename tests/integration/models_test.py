#!/usr/bin/env python3
"""Compares our decoder with transformers from PyPI, on small random models of every family: models_test.py DECODER_LOGITS GROUP [unittest
arguments]

GROUP is Families or RandomConfigs. Exits with 77 ("skipped") if the PyTorch or the transformers installed by ./setup cannot be imported."""

import copy
import json
import os
import subprocess
import sys
import tempfile
import unittest

import checkpoint_test
import random_models

PROGRAM = None
SEQUENCES, LENGTH, VOCABULARY = 2, 40, 97
SIZES = dict(vocab_size=VOCABULARY, hidden_size=48, intermediate_size=80, num_hidden_layers=4, num_attention_heads=6,
             max_position_embeddings=64, pad_token_id=None)
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}


class Case:
    """A model: its class's name in transformers, keys of its config, and how its checkpoint differs from what transformers would save."""

    def __init__(self, name, family, dtype="float32", shards=False, old_keys=False, edit=None, rename=(), extra=(), mlp_bias=False, base_alone=False,
                 stacked=False, mxfp4=False, tolerance=0, **keys):
        self.name, self.family, self.dtype, self.shards = name, family, dtype, shards
        self.old_keys, self.edit, self.rename, self.extra = old_keys, edit or {}, dict(rename), extra
        self.base_alone, self.stacked, self.mxfp4, self.tolerance = base_alone, stacked, mxfp4, tolerance
        self.mlp_bias, self.keys = mlp_bias, {**SIZES, **keys}


def rope(theta, kind="default", **keys):
    return {"rope_parameters": {"rope_type": kind, "rope_theta": theta, **keys}}


def long_factors(pairs):
    return {"short_factor": [1.0 + 0.1 * i for i in range(pairs)], "long_factor": [1.3 + 2.7 * i for i in range(pairs)]}


def longrope(pairs, **keys):
    return rope(1e4, "longrope", **long_factors(pairs), **keys)


def gemma3_rope(factor):
    return {"rope_parameters": {"full_attention": {"rope_type": "linear", "factor": factor, "rope_theta": 1e5},
                                "sliding_attention": {"rope_type": "default", "rope_theta": 300.0}}}


def neox(name, **keys):
    return Case(f"neox_{name}", "GPTNeoX", **{"intermediate_size": 192, **keys})


def gpt2(name, **keys):
    return Case(f"gpt2_{name}", "GPT2", **keys)


CASES = (
    neox("default"),
    neox("sequential", use_parallel_residual=False),
    neox("half_rotary", **rope(1e3, partial_rotary_factor=0.5)),
    neox("odd_rotary", hidden_size=42, num_attention_heads=3, **rope(1e4, partial_rotary_factor=0.37)),
    neox("old_keys", old_keys=True, **rope(5e3, partial_rotary_factor=0.75)),
    neox("old_scaling", old_keys=True, **rope(1e4, "linear", factor=2.0, partial_rotary_factor=0.25)),
    neox("yarn", hidden_size=96, **rope(1e4, "yarn", factor=2.0, original_max_position_embeddings=64, partial_rotary_factor=0.5)),
    neox("old_head", rename={"lm_head.weight": "embed_out.weight"}, extra=("attention.bias", "attention.masked_bias", "attention.rotary_emb.inv_freq")),
    neox("new_head", rename={"embed_out.weight": "lm_head.weight"}),
    neox("tied", tie_word_embeddings=True),
    neox("no_attention_bias", attention_bias=False, dtype="float16"),
    Case("llama_default", "Llama"),
    Case("llama_gqa", "Llama", num_key_value_heads=2, dtype="bfloat16"),
    Case("llama_one_key_head", "Llama", num_key_value_heads=1, head_dim=10, shards=True),
    Case("llama_tied", "Llama", tie_word_embeddings=True, rms_norm_eps=1e-3),
    Case("llama_biases", "Llama", attention_bias=True, mlp_bias=True),
    Case("llama_llama3", "Llama", **{"rope_parameters": {**LLAMA3, "rope_theta": 1e4}}),
    Case("llama_llama3_old_keys", "Llama", old_keys=True, **{"rope_parameters": {**LLAMA3, "rope_theta": 3e3}}),
    Case("llama_yarn", "Llama", num_key_value_heads=3, **rope(1e4, "yarn", factor=8.0, original_max_position_embeddings=16)),
    Case("llama_yarn_old_keys", "Llama", old_keys=True, **rope(5e5, "yarn", factor=4.0, original_max_position_embeddings=32, beta_fast=6.0, beta_slow=0.5)),
    Case("llama_yarn_mscale", "Llama", **rope(1e4, "yarn", factor=4.0, original_max_position_embeddings=512, mscale=1.0, mscale_all_dim=0.7)),
    Case("llama_linear", "Llama", **rope(1e4, "linear", factor=4.0)),
    Case("llama_linear_old_type", "Llama", old_keys="type", **rope(2e4, "linear", factor=4.0)),
    Case("llama_old_keys", "Llama", old_keys=True, dtype="float16", shards=True, **rope(5e5)),
    Case("llama_inv_freq", "Llama", extra=("self_attn.rotary_emb.inv_freq",)),
    Case("llama_gelu", "Llama", hidden_act="gelu"),
    Case("llama_two_heads_in_file", "Llama", edit={"tie_word_embeddings": True}),
    Case("olmo_default", "Olmo"),
    Case("olmo_clip", "Olmo", clip_qkv=0.4),
    Case("olmo_tied_gqa", "Olmo", tie_word_embeddings=True, num_key_value_heads=3, old_keys=True),
    Case("olmo_biases", "Olmo", attention_bias=True, clip_qkv=0.6, dtype="bfloat16"),
    Case("olmo2_default", "Olmo2", shards=True),
    Case("olmo2_gqa", "Olmo2", num_key_value_heads=2, rms_norm_eps=1e-6, old_keys=True, **rope(5e5)),
    Case("olmo2_biases", "Olmo2", attention_bias=True, dtype="bfloat16"),
    Case("olmo3_default", "Olmo3", sliding_window=7),
    Case("olmo3_types", "Olmo3", sliding_window=5, num_key_value_heads=2,
         layer_types=["full_attention", "sliding_attention", "sliding_attention", "full_attention"]),
    Case("olmo3_linear", "Olmo3", sliding_window=9,
         rope_parameters={"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 5e5},
                          "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}),
    Case("olmo3_yarn", "Olmo3", sliding_window=6, dtype="bfloat16",
         rope_parameters={"full_attention": {"rope_type": "yarn", "factor": 8.0, "rope_theta": 5e5, "original_max_position_embeddings": 32,
                                             "attention_factor": 1.2079441541679836, "beta_fast": 32.0, "beta_slow": 1.0},
                          "sliding_attention": {"rope_type": "default", "rope_theta": 5e5}}),
    Case("smollm3_default", "SmolLM3", num_key_value_heads=2),
    Case("smollm3_layers", "SmolLM3", num_key_value_heads=3, no_rope_layers=[0, 1, 0, 1], old_keys=True, **rope(5e4)),
    Case("smollm3_interval", "SmolLM3", num_key_value_heads=6, no_rope_layer_interval=2, tie_word_embeddings=False),
    Case("smollm3_window", "SmolLM3", num_key_value_heads=2, use_sliding_window=True, sliding_window=6),
    Case("smollm3_biases", "SmolLM3", num_key_value_heads=2, attention_bias=True, mlp_bias=True, dtype="bfloat16", shards=True),
    Case("apertus_default", "Apertus"),
    Case("apertus_gqa", "Apertus", num_key_value_heads=2, **{"rope_parameters": {**LLAMA3, "rope_theta": 1.2e7}}),
    Case("apertus_bf16", "Apertus", dtype="bfloat16", tie_word_embeddings=True, **rope(5e5)),
    Case("apertus_old_keys", "Apertus", old_keys=True, dtype="float16", **{"rope_parameters": {**LLAMA3, "rope_theta": 5e5}}),
    Case("apertus_old_keys_unscaled", "Apertus", old_keys=True, **rope(1e4)),
    Case("apertus_silu", "Apertus", hidden_act="silu", attention_bias=True),
    Case("ernie_default", "Ernie4_5", num_key_value_heads=2, head_dim=16),
    Case("ernie_biases", "Ernie4_5", num_key_value_heads=1, head_dim=10, use_bias=True, tie_word_embeddings=False, dtype="bfloat16"),
    Case("ernie_old_keys", "Ernie4_5", num_key_value_heads=3, head_dim=None, old_keys=True, edit={"head_dim": None}, **rope(1e5, "linear", factor=2.0)),
    Case("gemma_default", "Gemma", num_key_value_heads=2, head_dim=16),
    Case("gemma_old_keys", "Gemma", num_key_value_heads=1, head_dim=10, hidden_act="gelu", attention_bias=True, old_keys=True, dtype="bfloat16"),
    Case("gemma2_default", "Gemma2", num_key_value_heads=3, head_dim=8, sliding_window=7),
    Case("gemma2_no_caps", "Gemma2", num_key_value_heads=1, head_dim=10, sliding_window=50, attn_logit_softcapping=None, final_logit_softcapping=None,
         query_pre_attn_scalar=12, old_keys=True, **rope(1e3)),
    Case("gemma2_caps", "Gemma2", num_key_value_heads=2, head_dim=12, sliding_window=9, attn_logit_softcapping=1.3, final_logit_softcapping=2.1,
         query_pre_attn_scalar=5, dtype="bfloat16", tie_word_embeddings=False, attention_bias=True,
         layer_types=["full_attention", "full_attention", "sliding_attention", "full_attention"]),
    Case("gemma3_default", "Gemma3", num_key_value_heads=2, head_dim=16, sliding_window=6, num_hidden_layers=7),
    Case("gemma3_scaled", "Gemma3", num_key_value_heads=1, head_dim=10, sliding_window=9, edit={"sliding_window_pattern": 3},
         layer_types=["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"], final_logit_softcapping=2.5, **gemma3_rope(8.0)),
    Case("gemma3_old_keys", "Gemma3", num_key_value_heads=3, head_dim=8, sliding_window=5, old_keys=True, edit={"layer_types": None, "sliding_window_pattern": 2},
         layer_types=2 * ["sliding_attention", "full_attention"], query_pre_attn_scalar=20, tie_word_embeddings=False, **gemma3_rope(4.0)),
    Case("glm_default", "Glm", num_key_value_heads=2, head_dim=16),
    Case("glm_no_bias", "Glm", num_key_value_heads=1, head_dim=10, attention_bias=False, tie_word_embeddings=True, dtype="bfloat16", **rope(1e3)),
    Case("glm4_default", "Glm4", num_key_value_heads=2, head_dim=16),
    Case("glm4_no_bias", "Glm4", num_key_value_heads=1, head_dim=10, attention_bias=False, tie_word_embeddings=True, dtype="bfloat16", **rope(1e3)),
    Case("glm4_old_keys", "Glm4", num_key_value_heads=3, head_dim=12, old_keys=True, edit={"partial_rotary_factor": 1.0},
         **rope(1e4, partial_rotary_factor=1.0)),
    gpt2("default"),
    gpt2("gelu_tanh", n_inner=70, activation_function="gelu_pytorch_tanh", dtype="bfloat16", shards=True),
    gpt2("untied", tie_word_embeddings=False, layer_norm_epsilon=1e-3),
    gpt2("published", base_alone=True, extra=("attn.bias", "attn.masked_bias"), activation_function="gelu"),
    gpt2("layer_scales", scale_attn_by_inverse_layer_idx=True),
    gpt2("no_scales", scale_attn_weights=False),
    # Its products are scaled by the matrix product itself, which rounds otherwise.
    gpt2("reordered", scale_attn_by_inverse_layer_idx=True, reorder_and_upcast_attn=True, tolerance=2e-6),
    Case("granite_default", "Granite", num_key_value_heads=2),
    Case("granite_multipliers", "Granite", num_key_value_heads=3, tie_word_embeddings=True, embedding_multiplier=12.0, attention_multiplier=0.3,
         residual_multiplier=0.22, logits_scaling=2.7),
    Case("granite_biases", "Granite", attention_bias=True, mlp_bias=True, residual_multiplier=1.7, dtype="bfloat16", old_keys=True),
    Case("helium_default", "Helium", num_key_value_heads=2, head_dim=8),
    Case("helium_biases", "Helium", num_key_value_heads=3, head_dim=8, attention_bias=True, mlp_bias=True, tie_word_embeddings=True, old_keys=True),
    Case("hunyuan_default", "HunYuanDenseV1", num_key_value_heads=2, head_dim=8),
    Case("hunyuan_alpha", "HunYuanDenseV1", num_key_value_heads=1, head_dim=10, tie_word_embeddings=True, **rope(1e4, "dynamic", factor=1.0, alpha=50.0)),
    Case("hunyuan_biases", "HunYuanDenseV1", num_key_value_heads=3, head_dim=12, attention_bias=True, old_keys="type", dtype="bfloat16",
         **rope(1e3, "dynamic", factor=1.0, alpha=1000)),
    Case("mistral_default", "Mistral", num_key_value_heads=2),
    Case("mistral_window", "Mistral", num_key_value_heads=1, head_dim=10, sliding_window=9, shards=True),
    Case("mistral_no_window", "Mistral", num_key_value_heads=3, sliding_window=None, old_keys=True, dtype="bfloat16", **rope(1e6)),
    Case("mistral_yarn", "Mistral", num_key_value_heads=2, sliding_window=None, **rope(1e6, "yarn", factor=4.0, original_max_position_embeddings=16)),
    Case("gptoss_default", "GptOss", num_key_value_heads=2),
    Case("gptoss_small_limit", "GptOss", num_key_value_heads=1, head_dim=10, num_local_experts=11, num_experts_per_tok=3, sliding_window=9, swiglu_limit=0.8,
         swiglu_alpha=1.1, attention_bias=False, tie_word_embeddings=True, **rope(1e4, "yarn", factor=8.0, truncate=False, original_max_position_embeddings=16)),
    Case("gptoss_old_keys", "GptOss", num_key_value_heads=3, head_dim=12, num_local_experts=5, num_experts_per_tok=1, old_keys=True, dtype="bfloat16",
         sliding_window=7, shards=True, **rope(1.5e5, "yarn", factor=32.0, beta_fast=32.0, beta_slow=1.0, truncate=False, original_max_position_embeddings=16)),
    Case("gptoss_plain_rope", "GptOss", num_key_value_heads=6, num_local_experts=4, num_experts_per_tok=4, **rope(1e4)),
    # As published: experts of 4 bits, the rest in bfloat16.
    Case("gptoss_mxfp4", "GptOss", num_key_value_heads=2, hidden_size=64, intermediate_size=96, num_attention_heads=4, head_dim=16, num_local_experts=5,
         num_experts_per_tok=2, sliding_window=9, dtype="bfloat16", mxfp4=True),
    Case("llama_yarn_untruncated", "Llama", **rope(1e4, "yarn", factor=8.0, truncate=False, original_max_position_embeddings=16)),
    Case("granitemoe_default", "GraniteMoe", num_key_value_heads=2),
    Case("granitemoe_multipliers", "GraniteMoe", num_key_value_heads=3, num_local_experts=11, num_experts_per_tok=4, tie_word_embeddings=True,
         embedding_multiplier=12.0, attention_multiplier=0.3, residual_multiplier=0.22, logits_scaling=2.7, shards=True),
    Case("granitemoe_stacked", "GraniteMoe", num_local_experts=5, num_experts_per_tok=1, stacked=True, attention_bias=True, dtype="bfloat16"),
    Case("granitemoe_old_keys", "GraniteMoe", num_key_value_heads=1, num_local_experts=5, old_keys=True, dtype="bfloat16", **rope(1e5)),
    Case("granitemoeshared_default", "GraniteMoeShared", num_key_value_heads=2),
    Case("granitemoeshared_stacked", "GraniteMoeShared", num_key_value_heads=2, num_local_experts=5, shared_intermediate_size=21, stacked=True, dtype="bfloat16"),
    Case("granitemoeshared_none", "GraniteMoeShared", num_local_experts=5, num_experts_per_tok=1, shared_intermediate_size=0, tie_word_embeddings=True),
    Case("mixtral_default", "Mixtral", num_key_value_heads=2),
    Case("mixtral_window", "Mixtral", num_key_value_heads=1, head_dim=10, num_local_experts=5, num_experts_per_tok=3, sliding_window=9, shards=True),
    Case("mixtral_stacked", "Mixtral", num_key_value_heads=2, num_local_experts=11, stacked=True, tie_word_embeddings=True, dtype="bfloat16"),
    Case("mixtral_old_keys", "Mixtral", num_key_value_heads=3, old_keys=True, dtype="float16", edit={"router_jitter_noise": 0.1}, **rope(1e4)),
    Case("qwen2_moe_default", "Qwen2Moe", num_key_value_heads=2),
    Case("qwen2_moe_window", "Qwen2Moe", num_key_value_heads=1, num_experts=9, num_experts_per_tok=2, moe_intermediate_size=21, shared_expert_intermediate_size=17,
         norm_topk_prob=True, qkv_bias=False, use_sliding_window=True, sliding_window=6, max_window_layers=3, mlp_only_layers=[1], shards=True),
    Case("qwen2_moe_published", "Qwen2Moe", num_key_value_heads=6, num_experts=6, num_experts_per_tok=4, moe_intermediate_size=16, dtype="bfloat16", old_keys=True,
         edit={"num_experts": 6, "num_local_experts": None, "layer_types": None, "qkv_bias": None}, **rope(1e6)),
    Case("qwen3_moe_default", "Qwen3Moe", num_key_value_heads=2),
    Case("qwen3_moe_some_layers", "Qwen3Moe", num_experts=9, num_experts_per_tok=2, moe_intermediate_size=21, norm_topk_prob=True, head_dim=10,
         num_key_value_heads=2, decoder_sparse_step=2, mlp_only_layers=[3], shards=True),
    Case("qwen3_moe_published", "Qwen3Moe", num_experts=6, num_experts_per_tok=1, moe_intermediate_size=16, num_key_value_heads=1, head_dim=8, dtype="bfloat16",
         old_keys=True, edit={"num_experts": 6, "num_local_experts": None, "max_window_layers": 4, "mlp_only_layers": []}, **rope(1e6)),
    Case("qwen3_moe_stacked", "Qwen3Moe", num_experts=8, num_experts_per_tok=3, moe_intermediate_size=13, num_key_value_heads=2, stacked=True,
         use_sliding_window=True, sliding_window=6, tie_word_embeddings=True),
    Case("olmoe_default", "Olmoe", num_experts=12, num_experts_per_tok=3),
    Case("olmoe_normalized", "Olmoe", num_experts=9, num_experts_per_tok=2, norm_topk_prob=True, clip_qkv=0.7, num_key_value_heads=1, shards=True),
    Case("olmoe_stacked", "Olmoe", num_experts=6, num_experts_per_tok=1, stacked=True, tie_word_embeddings=True, num_key_value_heads=2, dtype="bfloat16"),
    Case("olmoe_old_keys", "Olmoe", num_experts=20, num_experts_per_tok=8, old_keys=True, dtype="bfloat16", edit={"router_aux_loss_coef": 0.01}, **rope(1e5)),
    Case("phi3_default", "Phi3", num_key_value_heads=2),
    Case("phi3_window", "Phi3", num_key_value_heads=1, head_dim=10, sliding_window=7, tie_word_embeddings=True, dtype="bfloat16"),
    Case("phi3_partial", "Phi3", **rope(1e4, partial_rotary_factor=0.75)),
    Case("phi3_long", "Phi3", original_max_position_embeddings=16, **longrope(4)),
    Case("phi3_short", "Phi3", num_key_value_heads=3, original_max_position_embeddings=48, **longrope(3, partial_rotary_factor=0.75)),
    Case("phi3_old_keys", "Phi3", original_max_position_embeddings=16, old_keys="type", edit={"partial_rotary_factor": 0.75},
         **longrope(3, partial_rotary_factor=0.75)),
    Case("phi3_su", "Phi3", original_max_position_embeddings=16, old_keys=True, edit={"rope_scaling": {"type": "su", **long_factors(4)}}, **longrope(4)),
    Case("phi3_attention_factor", "Phi3", original_max_position_embeddings=16, **longrope(4, attention_factor=1.19)),
    Case("llama_longrope", "Llama", **longrope(4, original_max_position_embeddings=16, factor=3.0)),
    Case("qwen2_default", "Qwen2", num_key_value_heads=2),
    Case("qwen2_window", "Qwen2", num_key_value_heads=1, use_sliding_window=True, sliding_window=6, max_window_layers=2, tie_word_embeddings=True),
    Case("qwen2_types", "Qwen2", num_key_value_heads=3, use_sliding_window=True, sliding_window=5,
         layer_types=["sliding_attention", "full_attention", "full_attention", "sliding_attention"]),
    Case("qwen2_old_keys", "Qwen2", num_key_value_heads=2, old_keys=True, dtype="bfloat16", **rope(1e6)),
    Case("qwen3_default", "Qwen3", num_key_value_heads=2, head_dim=16),
    Case("qwen3_tied", "Qwen3", num_key_value_heads=6, head_dim=8, tie_word_embeddings=True, dtype="bfloat16", **rope(1e6)),
    Case("qwen3_biases", "Qwen3", num_key_value_heads=3, head_dim=12, attention_bias=True, old_keys=True),
    Case("qwen3_window", "Qwen3", num_key_value_heads=3, head_dim=12, use_sliding_window=True, sliding_window=6, max_window_layers=2),
    Case("starcoder2_default", "Starcoder2", num_key_value_heads=2),
    Case("starcoder2_window", "Starcoder2", num_key_value_heads=1, head_dim=10, sliding_window=7, use_bias=False, tie_word_embeddings=False, shards=True),
    Case("starcoder2_old_keys", "Starcoder2", num_key_value_heads=3, hidden_act="gelu", norm_epsilon=1e-3, old_keys=True, dtype="bfloat16", **rope(1e5)),
    Case("stablelm_default", "StableLm", num_key_value_heads=6),
    Case("stablelm_biases", "StableLm", num_key_value_heads=1, use_qkv_bias=True, tie_word_embeddings=True, layer_norm_eps=1e-3, dtype="bfloat16"),
    Case("stablelm_old_keys", "StableLm", num_key_value_heads=2, old_keys=True, edit={"partial_rotary_factor": 0.5},
         **rope(1e3, partial_rotary_factor=0.5)),
    Case("qwen3_mlp_bias", "Qwen3", num_key_value_heads=3, head_dim=8, mlp_bias=True, edit={"mlp_bias": True}),
    Case("opensci", "Qwen3", num_key_value_heads=6, head_dim=8, attention_bias=True, mlp_bias=True, tie_word_embeddings=True, old_keys=True,
         rms_norm_eps=1e-5, edit={"model_type": "opensci", "mlp_bias": True, "qk_layernorm": True}, **rope(1e5)),
)


def make_model(case):
    import torch
    import transformers

    keys = dict(case.keys)
    takes_mlp_bias = case.family in ("Llama", "SmolLM3", "Granite", "Helium")
    if takes_mlp_bias:
        keys["mlp_bias"] = case.mlp_bias
    config = getattr(transformers, "Gemma3TextConfig" if case.family == "Gemma3" else f"{case.family}Config")(**keys, attn_implementation="eager")
    model = getattr(transformers, "GPT2LMHeadModel" if case.family == "GPT2" else f"{case.family}ForCausalLM")(config)
    if hasattr(config, "num_experts_per_tok"):
        model.set_experts_implementation("eager")
    if case.mlp_bias and not takes_mlp_bias:
        for layer in model.model.layers:
            for name in ("gate_proj", "up_proj", "down_proj"):
                old = getattr(layer.mlp, name)
                setattr(layer.mlp, name, torch.nn.Linear(old.in_features, old.out_features, bias=True))
    generator = torch.Generator().manual_seed(sum(case.name.encode()))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if "alpha" in name:
                parameter += 0.3 * noise
            elif parameter.dim() == 1:  # weights and biases of norms, biases
                parameter += 0.2 * noise
            else:
                parameter.copy_(noise / parameter.shape[-1] ** 0.5)
    return model.eval()


def rewrite_config(path, case):
    with open(path) as file:
        config = json.load(file)
    if case.old_keys:
        parameters = config.pop("rope_parameters")
        if "sliding_attention" in parameters:
            config["rope_local_base_freq"] = parameters["sliding_attention"]["rope_theta"]
            parameters = parameters["full_attention"]
        kind, theta, part = parameters.pop("rope_type"), parameters.pop("rope_theta"), parameters.pop("partial_rotary_factor", None)
        config["rotary_emb_base" if case.family == "GPTNeoX" else "rope_theta"] = theta
        if part is not None:
            config["rotary_pct"] = part
        config["rope_scaling"] = None
        if kind != "default":
            config["rope_scaling"] = {"type" if case.old_keys == "type" or case.family == "GPTNeoX" else "rope_type": kind, **parameters}
        config["torch_dtype"] = config.pop("dtype", None)
    elif not any("rope" in key for key in case.keys):
        config.pop("rope_parameters", None)  # our defaults must be those of the class
    config.update(case.edit)
    with open(path, "w") as file:
        json.dump(config, file)


def rewrite_tensors(path, case, state):
    import torch
    from safetensors.torch import load_file, save_file

    tensors = {case.rename.get(name, name): tensor for name, tensor in (state if case.stacked else load_file(path)).items()}
    blocks = {"GPTNeoX": "gpt_neox.layers", "GPT2": "transformer.h"}.get(case.family, "model.layers")
    for i, name in enumerate(case.extra):
        tensors[f"{blocks}.1.{name}"] = torch.ones((1, 1, 3, 3), dtype=torch.bool) if i == 0 else torch.ones(3)
    if case.base_alone:
        tensors = {name.partition(".")[2]: tensor for name, tensor in tensors.items()}
    save_file(tensors, path)


def save(model, folder, case):
    """Rounds the model's weights to those in the file. Casting the model itself would round the frequencies of RoPE, too."""
    import torch

    rounded = copy.deepcopy(model).to(getattr(torch, case.dtype))
    model.load_state_dict({name: tensor.float() for name, tensor in rounded.state_dict().items()})
    rounded.save_pretrained(folder, max_shard_size="40KB" if case.shards else "1GB")
    rewrite_config(os.path.join(folder, "config.json"), case)
    if case.rename or case.extra or case.base_alone or case.stacked:
        state = rounded.state_dict()
        if model.config.tie_word_embeddings:
            del state["lm_head.weight"]
        rewrite_tensors(os.path.join(folder, "model.safetensors"), case, state)


def pack_experts(folder):
    """Replaces the experts of a checkpoint by random ones in MXFP4. Returns the model as transformers unpacks it."""
    import torch
    import transformers
    from safetensors.torch import load_file, save_file

    path = os.path.join(folder, "model.safetensors")
    generator = torch.Generator().manual_seed(3)
    tensors = {}
    for name, tensor in load_file(path).items():
        if not name.endswith(("gate_up_proj", "down_proj")):
            tensors[name] = tensor
            continue
        experts, inputs, outputs = tensor.shape
        shape = (experts, outputs, inputs // 32)
        tensors[f"{name}_blocks"] = torch.randint(256, (*shape, 16), dtype=torch.uint8, generator=generator)
        tensors[f"{name}_scales"] = torch.randint(118, 125, shape, dtype=torch.uint8, generator=generator)
    save_file(tensors, path, metadata={"format": "pt"})
    config_path = os.path.join(folder, "config.json")
    with open(config_path) as file:
        config = json.load(file)
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router",
                                                                                          "model.embed_tokens", "lm_head"]}
    with open(config_path, "w") as file:
        json.dump(config, file)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager",
                                                              quantization_config=transformers.Mxfp4Config(dequantize=True))
    return model.eval()


def expected_logits(cases, folders, tokens):
    """The logits of transformers for each case, whose checkpoint is saved."""
    import torch

    expected = {}
    for case in cases:
        model = make_model(case)
        save(model, folders[case], case)
        if case.mxfp4:
            model = pack_experts(folders[case])
        with torch.no_grad():
            expected[case] = model(tokens).logits
    return expected


class Comparison(unittest.TestCase):
    def compare(self, cases):
        import torch

        torch.set_num_threads(1)
        generator = torch.Generator().manual_seed(1)
        tokens = torch.randint(VOCABULARY, (SEQUENCES, LENGTH), generator=generator)
        text = ";".join(",".join(map(str, row)) for row in tokens.tolist())
        with tempfile.TemporaryDirectory() as root:
            folders = {case: os.path.join(root, case.name) for case in cases}
            expected = expected_logits(cases, folders, tokens)
            done = subprocess.run([PROGRAM, text, *folders.values()], capture_output=True, text=True, timeout=200,
                                  env={**os.environ, "OMP_NUM_THREADS": "1"})
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            for case, folder in folders.items():
                with self.subTest(case.name):
                    self.assertEqual(os.path.exists(os.path.join(folder, "model.safetensors.index.json")), case.shards)
                    logits = expected[case]
                    losses = torch.nn.functional.cross_entropy(logits[:, :-1].reshape(-1, VOCABULARY), tokens[:, 1:].reshape(-1),
                                                               reduction="none")
                    with open(os.path.join(folder, "logits.f32"), "rb") as file:
                        found = torch.frombuffer(bytearray(file.read()), dtype=torch.float32)
                    self.assertEqual(found.numel(), logits.numel() + losses.numel())
                    self.assertGreater(logits.std().item(), 0.1)
                    worst = (found[:logits.numel()] - logits.flatten()).abs().max().item()
                    worst_loss = (found[logits.numel():] - losses).abs().max().item()
                    print(f"{case.name}: logits {worst:.1e}, losses {worst_loss:.1e}")
                    self.assertLessEqual(worst, case.tolerance)
                    self.assertLessEqual(worst_loss, case.tolerance)


class Families(Comparison):
    def test_logits_and_losses_are_those_of_transformers(self):
        self.compare(CASES)


class RandomConfigs(Comparison):
    def test_logits_and_losses_are_those_of_transformers(self):
        self.compare([Case(name, family, dtype=dtype, **keys) for name, family, dtype, keys in random_models.configs()])


if __name__ == "__main__":
    PROGRAM, group = sys.argv[1], sys.argv[2]
    checkpoint_test.import_compressed_tensors()
    import transformers
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    unittest.main(argv=[sys.argv[0], group, *sys.argv[3:]], verbosity=2)
