"""The curvature engine as a function."""

from __future__ import annotations

import dataclasses
import math
import typing

import torch

from ptqwatch import _native
from ptqwatch._arrays import check, globs
from ptqwatch._model import Losses, on_copy_of


@dataclasses.dataclass(frozen=True)
class Eigenpair:
    """An eigenvalue of the Hessian and its vector."""

    value: float
    """nats per squared unit of weight"""
    bound: float
    """no eigenvalue lies beyond this one, with a probability of 97.5 %"""
    residual_ratio: float
    """||Hv - lambda v|| / |lambda|"""
    converged: bool
    """the residual reached the requested size"""
    products: int
    """products with the Hessian in this search"""
    method: str
    """the algorithm of the search"""
    vector: torch.Tensor = dataclasses.field(repr=False)
    """[dimension], of norm 1; see Curvature.split"""


@dataclasses.dataclass(frozen=True)
class HessianTrace:
    """The trace of the Hessian, by Hutchinson's estimator."""

    value: float
    """nats per squared unit of weight"""
    stderr: float
    """its standard error, from the probe vectors"""
    interval: float
    """half the width of the 95 % interval (Student's t)"""
    batch_stderr: float | None
    """standard error as an estimate for all data, from the difference between batches; None with one batch, or
    if the probe vectors explain all of it"""
    weighted: float
    """sum over parameters l of mean(w^2)_l tr(H_l), which follows quantization error across runs"""
    weighted_stderr: float
    parameters: dict[str, tuple[float, float]] = dataclasses.field(repr=False)
    """by parameter: (trace, standard error); the sum is the whole trace"""
    layers: dict[str, tuple[float, float]] = dataclasses.field(repr=False)
    """the same with the parameters of a module together"""
    probes: int
    converged: bool
    """trace_relative_stderr was reached"""
    products: int


@dataclasses.dataclass(frozen=True)
class Curvature:
    """The curvature of a model's mean loss."""

    loss: float
    """the mean over the batches, in nats"""
    top: list[Eigenpair]
    """the largest eigenvalues, largest first"""
    bottom: list[Eigenpair]
    """the smallest one, if requested"""
    trace: HessianTrace | None
    mode: str
    """how products with the Hessian were computed: "retained_graph" and "recomputed_graph" are exact, "finite_difference"
    is within about 2e-4; "gauss_newton" is another matrix"""
    mode_detail: str
    """why "auto" took finite differences: the operator without a second derivative, or the memory of graphs"""
    gradient: torch.Tensor = dataclasses.field(repr=False)
    """[dimension], of the mean loss"""
    parameters: list[tuple[str, tuple[int, ...], int]] = dataclasses.field(repr=False)
    """(name, shape, offset in a vector) of the parameters in scope"""

    @property
    def top_eigenvalue(self) -> float:
        return self.top[0].value

    def split(self, vector: torch.Tensor) -> dict[str, torch.Tensor]:
        """The parts of a vector [dimension] by parameter, in its shape; they share the vector's memory."""
        if vector.shape != self.gradient.shape:
            raise ValueError(f"vector has shape {list(vector.shape)}; it must be {list(self.gradient.shape)}")
        return {name: vector[offset:offset + math.prod(shape)].view(shape) for name, shape, offset in self.parameters}


def curvature(model: torch.nn.Module, losses: Losses, batches: typing.Sequence[typing.Any], *,
              scope: typing.Literal["quantized_weights", "all_parameters", "named_parameters"] = "quantized_weights",
              parameters: typing.Sequence[str] = (), top_eigenvalues: int = 1, bottom_eigenvalue: bool = False,
              eigenvalue_residual_ratio: float = 0.02, trace: bool = True, trace_relative_stderr: float = 0.1,
              mode: typing.Literal["auto", "retained_graph", "recomputed_graph", "finite_difference",
                                   "gauss_newton"] = "auto",
              micro_batch: int = 0, max_eigenvalue_products: int = 40, max_trace_probes: int = 32,
              seed: int = 0) -> Curvature:
    """Measures the Hessian of a model's mean loss: the ends of its spectrum, its trace, and the gradient.

    >>> measured = ptqwatch.curvature(model, token_losses, batches)
    >>> measured.top_eigenvalue, measured.trace.value, measured.trace.stderr

    Gives the numbers that a monitor with the same options gives for these weights. Eigenvalues are found by Lanczos
    iterations, the trace by Hutchinson's estimator on random sign vectors, with the variance of the large eigenvalues
    removed as in Hutch++ (arXiv 2010.09649). docs/curvature.md explains the engine.

    Args:
      model: only read; a copy of it is run, in evaluation mode.
      losses: losses(model, batch) -> Tensor of losses in nats, as for `watch`.
      batches: a list of batches as `losses` takes them. Their mean loss is differentiated.
      scope: the parameters that the Hessian is about. "named_parameters" are those that match one of `parameters`.
      parameters: globs over parameter names.
      top_eigenvalues: number of largest eigenvalues.
      bottom_eigenvalue: also find the smallest one.
      eigenvalue_residual_ratio: a search ends at ||Hv - lambda v|| <= this * |lambda|, or after max_eigenvalue_products.
      trace: False leaves the trace out.
      trace_relative_stderr: the estimate ends at a standard error of this share of the trace, or after max_trace_probes
        (at least 8).
      mode: how products are computed. "auto" takes the first of the next three that works for the model. "gauss_newton"
        needs the logits from `losses`.
      micro_batch: batches with more sequences are cut into pieces of this many; 0: not cut.
      seed: of the random vectors.

    Cost: some forward passes over all batches, about 15 gradients of one sequence, and 2 to 4.5 gradients over all batches
    for each product with the Hessian. Twice the model's memory, and 6 to 27 vectors of the scope's size.

    Raises:
      TypeError: a value of the wrong type.
      ValueError: a value that is not allowed, or no batches.
      RuntimeError: `losses` raised an exception or is not repeatable; the loss is not finite; the Hessian is zero.
    """
    check(str, scope=scope, mode=mode)
    check(bool, bottom_eigenvalue=bottom_eigenvalue, trace=trace)
    check(float, eigenvalue_residual_ratio=eigenvalue_residual_ratio, trace_relative_stderr=trace_relative_stderr)
    check(int, top_eigenvalues=top_eigenvalues, micro_batch=micro_batch, max_eigenvalue_products=max_eigenvalue_products,
          max_trace_probes=max_trace_probes, seed=seed)
    if not 0 <= seed < 1 << 64:
        raise ValueError(f"seed is {seed}; it must be from 0 to 2^64 - 1")
    found = on_copy_of(
        model, losses, batches, _native.curvature, scope=scope, parameters=globs(parameters, "parameters"), top_eigenvalues=top_eigenvalues,
        bottom_eigenvalue=bottom_eigenvalue, eigenvalue_residual_ratio=eigenvalue_residual_ratio, trace=trace,
        trace_relative_stderr=trace_relative_stderr, mode=mode, micro_batch=micro_batch,
        max_eigenvalue_products=max_eigenvalue_products, max_trace_probes=max_trace_probes, seed=seed)
    pairs = {end: [Eigenpair(**pair) for pair in found.pop(end)] for end in ("top", "bottom")}
    estimate = found.pop("trace")
    return Curvature(trace=estimate and HessianTrace(**estimate), **pairs, **found)
