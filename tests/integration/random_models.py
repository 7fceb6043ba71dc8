"""Random configs of transformers' classes, with sizes that do not divide each other."""

import random

SEQUENCE = 40  # tokens; windows are shorter and longer
COUNT = 10  # configs of each family


def sizes(rng, whole_heads=False):
    """Keys that most families have. `whole_heads`: the heads together are as wide as the hidden states."""
    key_heads = rng.choice((1, 1, 2, 3))
    heads = key_heads * rng.choice((1, 2, 3))
    head_dim = 2 * rng.randint(3, 9)
    keys = dict(hidden_size=heads * (head_dim if whole_heads else rng.randint(7, 19)), intermediate_size=rng.randint(11, 90),
                num_hidden_layers=rng.randint(2, 4), num_attention_heads=heads, num_key_value_heads=key_heads,
                tie_word_embeddings=rng.random() < 0.5)
    if not whole_heads:
        keys["head_dim"] = head_dim
    return keys


def some(rng, keys):
    """About half of the keys."""
    return {key: value for key, value in keys.items() if rng.random() < 0.5}


def rope(rng, **keys):
    return {"rope_parameters": {"rope_type": "default", "rope_theta": 10 ** rng.uniform(1, 6), **keys}}


def window(rng):
    return rng.choice((1, 2, rng.randint(3, SEQUENCE - 1), SEQUENCE, SEQUENCE + 5))


def layer_types(rng, layers):
    return [rng.choice(("full_attention", "sliding_attention")) for _ in range(layers)]


def even_parts(keys, parts):
    """Those parts of a head that are an even number of dimensions; transformers' class cannot rotate others."""
    head_dim = keys["hidden_size"] // keys["num_attention_heads"]
    return [part for part in parts if int(head_dim * part) % 2 == 0]


def ernie(rng):
    return {**sizes(rng), **rope(rng), **some(rng, {"use_bias": True})}


def gemma(rng):
    return {**sizes(rng), **rope(rng), **some(rng, {"attention_bias": True})}


def gemma2(rng):
    keys = {**gemma(rng), "sliding_window": window(rng),
            **some(rng, {"attn_logit_softcapping": rng.choice((None, rng.uniform(0.5, 3))), "final_logit_softcapping": rng.choice((None, rng.uniform(1, 3))),
                         "query_pre_attn_scalar": rng.randint(1, 60)})}
    return {**keys, **some(rng, {"layer_types": layer_types(rng, keys["num_hidden_layers"])})}


def gemma3(rng):
    keys = gemma2(rng)
    keys.pop("attn_logit_softcapping", None)
    keys["rope_parameters"] = {kind: rope(rng)["rope_parameters"] for kind in ("full_attention", "sliding_attention")}
    return keys


def glm4(rng):
    return {**sizes(rng), **rope(rng, partial_rotary_factor=rng.choice((0.5, 1.0))), **some(rng, {"attention_bias": False})}


def gpt2(rng):
    keys = sizes(rng, whole_heads=True)
    return {"hidden_size": keys["hidden_size"], "num_hidden_layers": keys["num_hidden_layers"], "num_attention_heads": keys["num_attention_heads"],
            "tie_word_embeddings": keys["tie_word_embeddings"], "max_position_embeddings": SEQUENCE + rng.randint(0, 9),
            **some(rng, {"n_inner": keys["intermediate_size"], "activation_function": rng.choice(("gelu", "gelu_new", "gelu_pytorch_tanh")),
                         "scale_attn_by_inverse_layer_idx": True, "scale_attn_weights": False, "layer_norm_epsilon": 10 ** rng.uniform(-6, -2)})}


def gpt_oss(rng):
    keys = {**sizes(rng), **mixture(rng, "num_local_experts"), "sliding_window": window(rng)}
    if rng.random() < 0.7:
        keys["rope_parameters"] = {"rope_type": "yarn", "rope_theta": 10 ** rng.uniform(2, 6), "factor": rng.uniform(1.5, 40), "truncate": rng.random() < 0.3,
                                   "original_max_position_embeddings": rng.choice((8, 16, 4096)), "beta_fast": 32.0, "beta_slow": 1.0}
    return {**keys, **some(rng, {"layer_types": layer_types(rng, keys["num_hidden_layers"]), "attention_bias": False, "swiglu_limit": rng.uniform(0.3, 2),
                                 "swiglu_alpha": rng.uniform(0.5, 3)})}


def granite(rng):
    multipliers = ("embedding_multiplier", "attention_multiplier", "residual_multiplier", "logits_scaling")
    return {**sizes(rng), **rope(rng), **some(rng, {key: rng.uniform(0.2, 3) for key in multipliers}),
            **some(rng, {"attention_bias": True, "mlp_bias": True})}


def helium(rng):
    keys = sizes(rng, whole_heads=True)
    return {**keys, "head_dim": keys["hidden_size"] // keys["num_attention_heads"], **rope(rng),
            **some(rng, {"attention_bias": True, "mlp_bias": True})}


def hunyuan(rng):
    keys = {**sizes(rng), **rope(rng), **some(rng, {"attention_bias": True})}
    if rng.random() < 0.5:
        keys["rope_parameters"].update(rope_type="dynamic", factor=1.0, alpha=rng.uniform(2, 2000))
    return keys


def mistral(rng):
    return {**sizes(rng), **rope(rng), "sliding_window": rng.choice((None, window(rng))), "rms_norm_eps": 10 ** rng.uniform(-6, -2)}


def mixture(rng, count="num_experts"):
    """Keys of a mixture: also one expert a token, and more experts than have tokens."""
    experts = rng.choice((1, 3, 8, 13, 70))
    return {count: experts, "num_experts_per_tok": rng.choice((1, rng.randint(1, min(experts, 6)))), "intermediate_size": rng.randint(5, 40)}


def olmoe(rng):
    keys = {**sizes(rng, whole_heads=True), **rope(rng), **mixture(rng)}
    return {**keys, **some(rng, {"clip_qkv": rng.uniform(0.3, 2), "norm_topk_prob": True, "attention_bias": True, "rms_norm_eps": 1e-3})}


def granitemoe(rng):
    keys = granite(rng)
    keys.pop("mlp_bias", None)
    return {**keys, **mixture(rng, "num_local_experts")}


def granitemoeshared(rng):
    return {**granitemoe(rng), "shared_intermediate_size": rng.choice((0, rng.randint(3, 40)))}


def mixtral(rng):
    return {**sizes(rng), **rope(rng), **mixture(rng, "num_local_experts"), "sliding_window": rng.choice((None, window(rng))),
            "rms_norm_eps": 10 ** rng.uniform(-6, -2)}


def qwen2_moe(rng):
    keys = {**qwen3_moe(rng, ("num_experts",)), "shared_expert_intermediate_size": rng.randint(3, 40), "max_window_layers": rng.randint(0, 4)}
    if keys["use_sliding_window"] and rng.random() < 0.5:
        keys["layer_types"] = layer_types(rng, keys["num_hidden_layers"])
    keys.pop("attention_bias", None)
    return {**keys, **some(rng, {"qkv_bias": False})}


def qwen3_moe(rng, counts=("num_experts", "num_local_experts")):
    keys = {**sizes(rng), **rope(rng)}
    experts = mixture(rng, rng.choice(counts))
    experts["moe_intermediate_size"] = experts.pop("intermediate_size")
    keys.update(experts, use_sliding_window=rng.random() < 0.7, sliding_window=window(rng))
    layers = range(keys["num_hidden_layers"])
    return {**keys, **some(rng, {"norm_topk_prob": True, "attention_bias": True, "decoder_sparse_step": 2,
                                 "mlp_only_layers": rng.sample(layers, rng.randint(1, len(layers)))})}


def phi3(rng):
    keys = {**sizes(rng, whole_heads=True), "sliding_window": rng.choice((None, window(rng))), "rms_norm_eps": 10 ** rng.uniform(-6, -2)}
    head_dim = keys["hidden_size"] // keys["num_attention_heads"]
    part = rng.choice(even_parts(keys, (1.0, 0.75, 0.5)))
    if rng.random() < 0.3:
        return {**keys, **rope(rng, partial_rotary_factor=part)}
    factors = {key: [rng.uniform(1, 9) for _ in range(int(head_dim * part) // 2)] for key in ("short_factor", "long_factor")}
    parameters = rope(rng, partial_rotary_factor=part, **factors, **some(rng, {"attention_factor": rng.uniform(1, 2)}))["rope_parameters"]
    return {**keys, "original_max_position_embeddings": rng.choice((16, SEQUENCE, SEQUENCE + 1)),
            "rope_parameters": {**parameters, "rope_type": "longrope"}}


def qwen2(rng):
    keys = {**sizes(rng, whole_heads=True), **rope(rng)}
    if rng.random() < 0.7:
        keys.update(use_sliding_window=True, sliding_window=window(rng), max_window_layers=rng.randint(0, keys["num_hidden_layers"]))
    if rng.random() < 0.3:
        keys.update(use_sliding_window=True, sliding_window=window(rng), layer_types=layer_types(rng, keys["num_hidden_layers"]))
    return keys


def stablelm(rng):
    keys = sizes(rng, whole_heads=True)
    return {**keys, **rope(rng, partial_rotary_factor=rng.choice(even_parts(keys, (0.25, 0.5, 1.0)))), **some(rng, {"use_qkv_bias": True, "layer_norm_eps": 1e-3})}


def starcoder2(rng):
    return {**sizes(rng), **rope(rng), "sliding_window": rng.choice((None, window(rng))), **some(rng, {"use_bias": False, "norm_epsilon": 1e-3})}


FAMILIES = {
    "Ernie4_5": ernie,
    "Gemma": gemma,
    "Gemma2": gemma2,
    "Gemma3": gemma3,
    "Glm": glm4,
    "Glm4": glm4,
    "GPT2": gpt2,
    "GptOss": gpt_oss,
    "Granite": granite,
    "GraniteMoe": granitemoe,
    "GraniteMoeShared": granitemoeshared,
    "Helium": helium,
    "HunYuanDenseV1": hunyuan,
    "Mistral": mistral,
    "Mixtral": mixtral,
    "Olmoe": olmoe,
    "Phi3": phi3,
    "Qwen2": qwen2,
    "Qwen2Moe": qwen2_moe,
    "Qwen3Moe": qwen3_moe,
    "StableLm": stablelm,
    "Starcoder2": starcoder2,
}


def configs():
    """(name, class's prefix, data type of the file, keys) of each."""
    for family, keys in FAMILIES.items():
        for i in range(COUNT):
            rng = random.Random(f"{family} {i}")
            yield f"{family.lower()}_random{i}", family, rng.choice(("float32", "float32", "bfloat16", "float16")), keys(rng)
