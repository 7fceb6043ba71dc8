"""A model for the engines that need no training run."""

from __future__ import annotations

import typing

import torch

from ptqwatch._batches import flatten
from ptqwatch._subject import ModelAdapter, resolve

# losses(model, batch) -> Tensor of losses in nats, or "module:function".
Losses = typing.Union[str, typing.Callable[[torch.nn.Module, typing.Any], typing.Any]]


def on_copy_of(model: torch.nn.Module, losses: Losses, batches: typing.Sequence[typing.Any],
               engine: typing.Callable[..., dict[str, typing.Any]], **options: typing.Any) -> dict[str, typing.Any]:
    """Calls a function of the compiled part that works on a copy of `model`.

    An exception of `losses` becomes the cause of the error that is raised; KeyboardInterrupt and SystemExit are raised as
    they are.
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model is a {type(model).__name__}; it must be a torch.nn.Module")
    tensors, structure = flatten(batches, "batches")
    evaluate = resolve(losses, "losses")
    raised: list[BaseException] = []

    def recorded(replica, batch):
        try:
            return evaluate(replica, batch)
        except BaseException as error:
            raised.append(error)
            if isinstance(error, Exception):
                raise
            raise RuntimeError(type(error).__name__) from None  # raised below, once

    try:
        return engine(adapter=ModelAdapter(model, None, recorded, structure), batches=tensors, **options)
    except Exception as error:
        cause = raised[-1] if raised else None
        if cause is not None and not isinstance(cause, Exception):
            raise cause
        raise error from cause
