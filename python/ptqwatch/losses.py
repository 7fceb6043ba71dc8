"""Losses functions for common models, for watch(losses="ptqwatch.losses:NAME")."""

import torch

IGNORED = -100


def causal_lm(model, batch):
    """Cross entropy of the next token, in nats, for a causal language model such as those of Hugging Face.

    `batch` is a tensor of token ids [N, T], or a dict with `input_ids` [N, T] and, if needed, `attention_mask` and `labels`, as
    the Trainer has them. The model returns logits [N, T, V], or an object or dict that has `logits`.

    Returns losses [N, T - 1] and their weights: 0 for a target that `labels` (-100) or, without labels, the attention mask
    leaves out.
    """
    inputs = batch if isinstance(batch, dict) else {"input_ids": batch}
    ids = inputs["input_ids"]
    mask = inputs.get("attention_mask")
    labels = inputs.get("labels")
    if labels is None:
        labels = ids if mask is None else ids.masked_fill(mask == 0, IGNORED)
    output = model(**{key: value for key, value in inputs.items() if key != "labels"}) if isinstance(batch, dict) else model(ids)
    logits = output["logits"] if isinstance(output, dict) else getattr(output, "logits", output)
    targets = labels[:, 1:]
    losses = torch.nn.functional.cross_entropy(
        logits[:, :-1].flatten(0, 1).float(), targets.flatten(), reduction="none", ignore_index=IGNORED)
    return losses.view(targets.shape), (targets != IGNORED).to(losses.dtype)
