"""An optimizer's rule and state, for the distance to the edge of stability (OptimizerView), or its name."""

import torch

from ptqwatch._shards import local

_KINDS = {torch.optim.AdamW: "adamw", torch.optim.Adam: "adam", torch.optim.SGD: "sgd"}


def unwrap(optimizer):
    """The optimizer inside wrappers such as accelerate's. A chain of several, as Megatron's, has no one inside."""
    while len(getattr(optimizer, "chained_optimizers", (optimizer,))) == 1 and hasattr(optimizer, "optimizer"):
        optimizer = optimizer.optimizer
    return optimizer


def kind_of(optimizer):
    """An OptimizerKind's name, or None for a rule that the library does not know. Muon is known by its name alone."""
    if isinstance(optimizer, torch.optim.Optimizer) and "muon" in type(optimizer).__name__.lower():
        return "muon"
    return _KINDS.get(type(optimizer))


def view_of(optimizer, tensors, held=True):
    """A dict of OptimizerView's fields, or None without a kind. `held`: the optimizer has the parameters that the model lists.

    `tensors` are the model's, as named_tensors lists them. Parameters are matched by identity. Copies no tensor.
    """
    optimizer = unwrap(optimizer)
    kind = kind_of(optimizer)
    if kind is None:
        return None
    if kind == "muon":
        return named_view(kind, "there is no formula for muon")
    if not held:
        return named_view(kind, "the optimizer has flat parameters, not the model's")
    if kind == "adam" and any(group.get("decoupled_weight_decay") for group in optimizer.param_groups):
        kind = "adamw"
    names = {}
    for name, tensor, is_parameter in tensors:
        if is_parameter:
            names.setdefault(id(tensor), name)
    all_known = [tensor for group in optimizer.param_groups for tensor in group["params"] if id(tensor) in names]
    steps = _steps_of(optimizer, all_known)
    rules, parameters = [], []
    for group in optimizer.param_groups:
        known = [tensor for tensor in group["params"] if id(tensor) in names]
        if known:
            rules.append(_rule_of(group))
        parameters += [_parameter_of(names[id(tensor)], group, optimizer.state.get(tensor, {}), steps) for tensor in known]
    unavailable = ""
    if any(rule != rules[0] for rule in rules):
        unavailable = "the optimizer's parameter groups differ in more than learning rate and weight decay"
    elif any(group.get("maximize") for group in optimizer.param_groups):
        unavailable = "the optimizer maximises"
    rule = rules[0] if rules else _rule_of({})
    return {"kind": kind, "unavailable": unavailable, "parameters": parameters, **rule}


def named_view(kind, unavailable):
    """A view of an optimizer of which no more than the kind is known, and why."""
    return {"kind": kind, "unavailable": unavailable, "parameters": [], **_rule_of({})}


def _rule_of(group):
    beta1, beta2 = group.get("betas", (0.9, 0.999))
    return {"momentum": float(group.get("momentum", 0)), "dampening": float(group.get("dampening", 0)),
            "nesterov": bool(group.get("nesterov", False)), "beta1": float(beta1), "beta2": float(beta2),
            "epsilon": float(group.get("eps", 1e-8))}


def _steps_of(optimizer, parameters):
    """The numbers of steps that are on a GPU (fused and capturable rules), by identity: read together, because each reading waits."""
    steps = [optimizer.state.get(parameter, {}).get("step") for parameter in parameters]
    steps = [local(step) for step in steps if isinstance(step, torch.Tensor) and step.is_cuda]
    return dict(zip(map(id, steps), torch.stack(steps).tolist())) if steps else {}


def _parameter_of(name, group, state, steps):
    moment = state.get("max_exp_avg_sq" if group.get("amsgrad") else "exp_avg_sq")
    step = local(state.get("step", 0))
    moment = None if moment is None else local(moment)
    return name, float(group["lr"]), float(group.get("weight_decay", 0)), int(steps.get(id(step), step)), moment
