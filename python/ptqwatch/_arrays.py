"""NumPy arrays and torch tensors, in and out."""

from __future__ import annotations

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
    if not tensor.is_floating_point():
        raise TypeError(f"{name} has dtype {array.dtype}; it must be floating-point")
    if tensor.ndim < 2 or tensor.numel() == 0 or columns not in (None, tensor.shape[-1]):
        wanted = "[outputs, inputs]" if columns is None else f"[..., {columns}]"
        raise ValueError(f"{name} has shape {list(tensor.shape)}; it must be {wanted} and not empty")
    return tensor.detach().flatten(0, -2).to("cpu", torch.float32).contiguous()


def like(value: typing.Any, numpy_arrays: bool) -> typing.Any:
    """The value; if it is a tensor and `numpy_arrays`, a numpy.ndarray that shares its memory."""
    return value.numpy() if numpy_arrays and isinstance(value, torch.Tensor) else value
