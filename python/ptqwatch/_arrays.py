"""NumPy arrays and torch tensors, in and out."""

from __future__ import annotations

import collections.abc
import numbers
import typing
import warnings

import numpy
import torch

Array = typing.Union[torch.Tensor, numpy.ndarray]


def matrix_of(array: Array, name: str, columns: int | None = None) -> torch.Tensor:
    """A contiguous float32 matrix on the CPU with these values, [rows, columns of the last dimension].

    Shares the memory of a contiguous float32 array on the CPU. Raises TypeError and ValueError, which name `name`.
    """
    if not isinstance(array, (torch.Tensor, numpy.ndarray)):
        raise TypeError(f"{name} is a {type(array).__name__}; it must be a torch.Tensor or a numpy.ndarray")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # an array that must not be written to: we do not
        tensor = torch.as_tensor(array)
    if tensor.is_meta or tensor.layout != torch.strided:
        raise TypeError(f"{name} is on the meta device or sparse; it must be dense")
    if not tensor.is_floating_point():
        raise TypeError(f"{name} has dtype {array.dtype}; it must be floating-point")
    if tensor.ndim < 2 or tensor.numel() == 0 or columns not in (None, tensor.shape[-1]):
        wanted = "[outputs, inputs]" if columns is None else f"[..., {columns}]"
        raise ValueError(f"{name} has shape {list(tensor.shape)}; it must be {wanted} and not empty")
    return tensor.detach().flatten(0, -2).to("cpu", torch.float32).contiguous()


_KINDS: dict[type, tuple[tuple[type, ...], str]] = {
    bool: ((bool, numpy.bool_), "True or False"),
    int: ((numbers.Integral,), "an int"),
    float: ((numbers.Real,), "a number"),
    str: ((str,), "a str"),
}


def check(kind: type, **arguments: typing.Any) -> None:
    """Raises TypeError, which names the argument and its value, if one is not of this kind: bool, int, float or str."""
    accepted, expected = _KINDS[kind]
    for name, value in arguments.items():
        if not isinstance(value, accepted) or (kind is not bool and isinstance(value, bool)):
            raise TypeError(f"{name} is {value!r}; it must be {expected}")


def globs(patterns: typing.Sequence[str], name: str) -> list[str]:
    """A list of patterns. TypeError, which names the argument, for one string: its letters would be taken for patterns."""
    found = [None] if isinstance(patterns, str) or not isinstance(patterns, collections.abc.Iterable) else list(patterns)
    if not all(isinstance(pattern, str) for pattern in found):
        raise TypeError(f"{name} is {patterns!r}; it must be a list of globs")
    return found


def like(value: typing.Any, numpy_arrays: bool) -> typing.Any:
    """The value; if it is a tensor and `numpy_arrays`, a numpy.ndarray that shares its memory."""
    return value.numpy() if numpy_arrays and isinstance(value, torch.Tensor) else value
