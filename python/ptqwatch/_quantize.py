"""The quantizers as functions."""

from __future__ import annotations

import collections.abc
import dataclasses
import re
import typing

import numpy
import torch

from ptqwatch import _native
from ptqwatch._arrays import Array, check, globs, like, matrix_of
from ptqwatch._model import Losses, on_copy_of
from ptqwatch._shards import local
from ptqwatch._subject import named_tensors, unwrap

# Accumulated inputs of a layer; made by `gram`.
#   inputs        d
#   tokens        rows that were summed
#   skipped_rows  rows with a NaN or infinity, which were left out
#   sum           [d, d] float64: the sum of x x^T over the rows x
Gram = _native.Gram

Blocks = typing.Union[Array, typing.Iterable[Array]]


class QuantizerFields(typing.TypedDict, total=False):
    """A quantizer. Each method ignores the fields that do not apply to it. docs/quantizers.md explains the methods."""

    method: str
    """"rtn" round to nearest; "gptq" arXiv 2210.17323; "awq" arXiv 2306.00978; "llm_int8" arXiv 2208.07339; "nf4" arXiv
    2305.14314. Default "gptq"."""
    bits: int
    """2 to 8. Default: those of the format or the method, else 4."""
    format: str
    """The number format: "int" (default), "fp8_e4m3", "fp8_e5m2", "mxfp4", "mxfp8" (OCP Microscaling Formats 1.0) or
    "nvfp4". RTN and GPTQ only."""
    scale_rule: str
    """The power of two that scales an MX block: "even" (default), "floor" or "rceil"."""
    group_size: int
    """Inputs that share a scale; -1: the whole row. Default 128."""
    group_rows: int
    """Rows that share a scale; -1: all. RTN and GPTQ without clipping only. Default 1."""
    rotation: int
    """Quantizes W B and rotates back, with B the orthonormal Hadamard matrix on blocks of 16, 32, 64 or 128 inputs (arXiv
    2509.23202); 0 (default): none. RTN and GPTQ only."""
    symmetric: bool
    """Grids that cover +-max|w| (default), or [min(w, 0), max(w, 0)]."""
    narrow_range: bool
    """Symmetric integer grids only: codes from 1, so that there are 2^(bits-1) - 1 steps on either side of zero. Default False."""
    order: str
    """The order of GPTQ's columns: "act" (default), by descending diag(H), or "none"."""
    damp: float
    """GPTQ: added to diag(H), relative to its mean over live columns. Default 0.01."""
    min_tokens_ratio: float
    """GPTQ: with fewer calibration rows than this times the inputs, RTN is used. Default 0.125; 0 switches that off."""
    scale_dtype: str
    """The type of scales: "f32" (default), "f16" or "bf16"."""
    round_scale_last: bool
    """RTN on symmetric integer grids without "mse" only: clips the weights to the range, divides them by the float32 scale,
    and only then rounds the scale to scale_dtype. Default False: codes are those of the rounded scale."""
    min_scale: float
    """Integer grids only: no scale is smaller, before it is rounded to scale_dtype. Default 0."""
    clip: str
    """The range of each grid. "none" (default): all of its group; "mse": the part with the smallest error; for symmetric
    integer grids "percentile": +- the clip_value-th percentile of |w|, as torch.quantile gives it, and "std": +- clip_value
    standard deviations, as torch.std gives them. Not for LLM.int8 and NF4."""
    clip_value: float
    """"percentile": above 0, up to 100; "std": above 0. Other rules: 0 (default)."""
    outlier_threshold: float
    """LLM.int8: inputs that reach this stay in full precision. Default 6."""
    baselines: bool
    """Whether to compute error_parts and, with GPTQ, rtn_loss and output_energy. Default True."""


@dataclasses.dataclass(frozen=True, repr=False)
class QuantizedWeight:
    """A weight [m, d] on its grid, with G groups in a row. Arrays are torch tensors on the CPU, or NumPy arrays if the
    weight was one; without codes, they are None.

    With an int format, dequantized = scale * (code - zero). AWQ: codes, scale and zero belong to W * channel_scale, so this
    is divided by channel_scale. LLM.int8: scale is absmax / 127; the columns `outlier_columns` keep their weights. NF4:
    codes are indices of the 16 levels, scale [blocks of 64 weights] is absmax. With a float format, codes are the number's
    bits with the sign first. With a rotation, codes, scale and zero belong to W B.
    """

    quantizer: str
    """Every field that decides the codes: "gptq b4 g128 sym act damp 0.01"."""
    status: str
    """"ok"; "damped": GPTQ needed a larger damp; "too_few_tokens", "rtn_fallback": codes are RTN's; "nonfinite",
    "unsupported": no codes."""
    status_detail: str
    dequantized: Array | None
    """[m, d] float32"""
    codes: Array | None
    """[m, d] uint8, 0 to 2^bits - 1, in the original order of columns"""
    scale: Array | None
    """[m, G] float32; G is 1 for LLM.int8; [blocks] for NF4"""
    zero: Array | None
    """[m, G] float32, whole numbers; None for NF4"""
    tensor_scale: float
    """NVFP4: 448 * 6 / max|W|, as compressed-tensors stores it"""
    order: Array | None
    """[d] int64: GPTQ handled column order[k] k-th"""
    damp: float
    """GPTQ: relative damping used"""
    damp_value: float
    """GPTQ: the number added to the diagonal"""
    loss: float | None
    """tr(dW H dW^T), H = 2 / tokens * sum of x x^T, undamped, dW = W - dequantized; twice the mean squared error of the
    layer's outputs, summed over outputs. None without activations."""
    loss_damped: float | None
    """the loss with the damped H, which GPTQ minimizes"""
    rtn_loss: float | None
    """the loss of RTN on the same grids"""
    output_energy: float | None
    """tr(W H W^T), the reference for relative losses"""
    error_parts: dict[str, float] | None
    """MX formats: the squared error of RTN by mechanism (arXiv 2605.20402), relative to the sum of w^2: "dead_zone",
    "grid_noise", "scale_bias" """
    dead_columns: int | None
    """inputs that were always 0"""
    duplicate_columns: int | None
    """other inputs that equalled an earlier one in every row"""
    channel_scale: Array | None
    """AWQ: [d] float32"""
    channel_scale_ratio: float
    """AWQ: the best exponent of mean|x|"""
    search_losses: Array | None
    """AWQ: [20] float64, the loss at the exponents 0, 0.05, ..., 0.95"""
    clipped_groups: int
    """groups whose grid covers less than their range"""
    outlier_columns: Array | None
    """LLM.int8: int64, ascending"""
    entropy_bits: float | None
    """with artifact_size=True: entropy of the codes in bits a weight (docs/quantizers.md)"""
    stored_bytes: int | None
    """with artifact_size=True: bytes if an entropy coder packs the codes and everything else is stored beside them"""

    def __repr__(self) -> str:
        loss = "" if self.loss is None else f", loss {self.loss:.4g}"
        return f"<QuantizedWeight {self.quantizer}: {self.status}{loss}>"


def gram(activations: Blocks, *, inputs: int | None = None, threads: int | None = None) -> Gram:
    """Sums x x^T over the inputs x of a layer, once for several calls of quantize.

    Args:
      activations: [..., d], or an iterable of such blocks, which need not fit into memory together. Rows with a NaN or
        infinity are left out and counted.
      inputs: d, if it is known: another last dimension is a ValueError.
      threads: torch.get_num_threads() by default. The result has the same bits for any number.

    Cost: tokens * d^2 / 2 multiply-adds; 8 d^2 bytes.
    """
    threads = _threads(threads)
    if inputs is not None:
        check(int, inputs=inputs)
    blocks = [activations] if isinstance(activations, (torch.Tensor, numpy.ndarray)) else activations
    if not isinstance(blocks, collections.abc.Iterable):
        raise TypeError(f"activations is a {type(activations).__name__}; it must be an array, an iterable of arrays or a Gram")
    sums = None
    for block in blocks:
        rows = matrix_of(block, "activations", inputs)
        if sums is None:
            inputs = rows.shape[1]
            sums = _native.GramAccumulator(inputs)
        sums.add(rows, threads)
    if sums is None:
        raise ValueError("activations is empty")
    return sums.take()


def _threads(threads: int | None) -> int:
    if threads is None:
        return torch.get_num_threads()
    check(int, threads=threads)
    if threads < 1:
        raise ValueError(f"threads is {threads}; it must be at least 1")
    return threads


def quantize(weight: Array, activations: Blocks | Gram | None = None, *, threads: int | None = None, artifact_size: bool = False,
             **fields: typing.Unpack[QuantizerFields]) -> QuantizedWeight:
    """Quantizes a weight matrix.

    >>> layer = ptqwatch.quantize(linear.weight, inputs, method="gptq", bits=4, group_size=64)
    >>> layer.loss / layer.output_energy, layer.dequantized

    Args:
      weight: [outputs, inputs], floating-point. A contiguous float32 array on the CPU is not copied; any other is
        converted to one.
      activations: inputs of the layer, [..., inputs], an iterable of such blocks, or a Gram. GPTQ, AWQ and, unless its
        outlier_threshold is 0, LLM.int8 need them. With other methods they give the losses.
      threads: torch.get_num_threads() by default. The result has the same bits for any number.
      artifact_size: also compute entropy_bits and stored_bytes, in less than a nanosecond a weight.
      **fields: the quantizer, see QuantizerFields.

    Cost in multiply-adds for a weight [m, d]: d^3 / 6 + 3/2 m d^2 for GPTQ, 21/2 m d^2 for AWQ, at most 3/2 m d^2 for the
    others; and that of `gram`. The GIL is free meanwhile.

    Raises:
      TypeError: an unknown field, or a value of the wrong type.
      ValueError: a value or a shape that is not allowed, or activations that are missing. Bad data is no error, but named
        in the status of the result.
    """
    threads = _threads(threads)
    check(bool, artifact_size=artifact_size)
    matrix = matrix_of(weight, "weight")
    if weight.ndim != 2:
        raise ValueError(f"weight has shape {list(weight.shape)}; it must be [outputs, inputs]")
    if activations is not None and not isinstance(activations, Gram):
        activations = gram(activations, inputs=matrix.shape[1], threads=threads)
    result = _native.quantize(matrix, activations, fields, threads, artifact_size)
    return _weight_of(result, isinstance(weight, numpy.ndarray))


def _weight_of(fields: dict[str, typing.Any], numpy_arrays: bool) -> QuantizedWeight:
    return QuantizedWeight(**{name: like(value, numpy_arrays) for name, value in fields.items()})


@dataclasses.dataclass(frozen=True)
class QuantizedLayer:
    """A weight of a model."""

    name: str
    """the parameter's name"""
    shape: tuple[int, ...]
    """in the model"""
    transposed: bool
    """the model stores it as [inputs, outputs]"""
    tokens: int
    """calibration rows in its statistics"""
    skipped_rows: int
    """calibration rows left out because of NaN or infinity"""
    matrix: QuantizedWeight
    """[outputs, inputs]; a convolution is [O, C * kh * kw]"""

    @property
    def weight(self) -> torch.Tensor | None:
        """The dequantized weight in the model's shape; None if it could not be quantized."""
        dequantized = self.matrix.dequantized
        if dequantized is None:
            return None
        return (dequantized.T if self.transposed else dequantized).reshape(self.shape)


def place_of(layer: str, parameters: dict[str, torch.Tensor]) -> torch.Tensor | None:
    """The parameter of this name, or the part of a parameter that a name such as "experts.w1[3]" or "w13[3][0:64]" means."""
    if layer in parameters:
        return parameters[layer]
    part = re.fullmatch(r"(.*?)((?:\[\d+(?::\d+)?\])+)", layer)
    if part is None or part[1] not in parameters:
        return None
    place = parameters[part[1]].detach()
    for first, end in re.findall(r"\[(\d+)(?::(\d+))?\]", part[2]):
        if place.dim() == 0 or int(first) >= len(place):
            return None
        place = place[int(first):int(end)] if end else place[int(first)]
    return place


@dataclasses.dataclass(frozen=True, repr=False)
class ModelQuantization:
    """A quantized model."""

    quantizer: str
    """every field that decides the codes"""
    layers: dict[str, QuantizedLayer]
    """by parameter name, in the order of first use in the forward pass"""
    skipped: dict[str, str]
    """all other parameters: why they were left out"""
    parameters: int
    """numbers in the model"""
    covered_parameters: int
    """numbers in `layers`"""
    unseen: float
    """the share of the matrix weights, embeddings, output head, routers and excluded ones apart, that ptqwatch cannot quantize:
    `skipped` says why"""
    entropy_bits: float | None
    """with artifact_size=True: entropy of the codes in bits a weight, the mean over all layers"""
    artifact_bytes: int | None
    """with artifact_size=True: bytes of all parameters, each layer's as `stored_bytes` of its matrix and the others with 16 bits
    an element"""

    def load_into(self, model: torch.nn.Module) -> None:
        """Writes the dequantized weights into a model of the same architecture, in place. ValueError if a parameter is missing or
        has another shape: then nothing is written."""
        parameters = {name: local(value) for name, value, _ in named_tensors(unwrap(model))}
        places = {name: place_of(name, parameters) for name in self.layers}
        for name, layer in self.layers.items():
            if places[name] is None:
                raise ValueError(f"the model has no parameter '{name}'")
            if places[name].shape != layer.shape:
                raise ValueError(f"the model's '{name}' has shape {list(places[name].shape)}; it must be {list(layer.shape)}")
        with torch.no_grad():
            for name, layer in self.layers.items():
                if layer.weight is not None:
                    places[name].copy_(layer.weight)

    def __repr__(self) -> str:
        return (f"<ModelQuantization {self.quantizer}: {len(self.layers)} layers with {self.covered_parameters} of {self.parameters} "
                f"parameters>")


Overrides = typing.Union[typing.Mapping[str, typing.Union[str, QuantizerFields]], typing.Sequence[tuple]]


def _triples(overrides: Overrides | None, names: list[str]) -> list[tuple[str, str | QuantizerFields, str]]:
    """Overrides as (glob, quantizer, the short name of the quantizer that it is for or "")."""
    pairs = overrides.items() if isinstance(overrides, collections.abc.Mapping) else overrides or ()
    if not isinstance(pairs, collections.abc.Iterable) or isinstance(pairs, str):
        raise TypeError(f"overrides is {overrides!r}; it must be a dict or a list of pairs")
    triples = []
    for i, given in enumerate(pairs):
        triple = (*given, "")[:3] if isinstance(given, (tuple, list)) and len(given) in (2, 3) else (None, None, None)
        layers, quantizer, of = triple
        if not (isinstance(layers, str) and isinstance(of, str)):
            raise TypeError(f"overrides[{i}] is {given!r}; it must be (glob, quantizer) or (glob, quantizer, short name)")
        if of and of not in names:
            raise ValueError(f"overrides[{i}] is for '{of}', which is none of the quantizers, {', '.join(names)}")
        triples.append(triple)
    return triples


def quantize_model(model: torch.nn.Module, losses: Losses, batches: typing.Sequence[typing.Any],
                   quantizers: typing.Sequence[str | QuantizerFields] = ("gptq4",), *,
                   overrides: Overrides | None = None,
                   include: typing.Sequence[str] = (), exclude: typing.Sequence[str] = (), output_head: bool = False,
                   routers: bool = False, embeddings: bool = False, calibration_mode: typing.Literal["one_shot", "sequential"] = "one_shot",
                   max_gram_bytes: int = 8 << 30, threads: int | None = None, artifact_size: bool = False) -> list[ModelQuantization]:
    """Quantizes every weight of a model that is multiplied with activations, as a monitor with the same options does.

    >>> gptq, awq = ptqwatch.quantize_model(model, token_losses, batches, ["gptq3", {"method": "awq", "bits": 4}])
    >>> gptq.load_into(copy)

    Args:
      model: only read; a copy of it is run, in evaluation mode.
      losses: losses(model, batch) -> Tensor of losses in nats, as for `watch`.
      batches: calibration data: a list of batches as `losses` takes them.
      quantizers: short names ("gptq3", "rtn4-int-h64", "gptq-nvfp4", "nf4") or dicts of QuantizerFields.
      overrides: {glob over parameter names: quantizer} for layers with another one. Or a list of pairs of these; a triple ends
        with the short name of the one of `quantizers` that it is for. The first match wins.
      include, exclude: globs over parameter names: only these, and not those.
      output_head: also quantize the last product of the forward pass, and with it the embedding if they are tied.
      routers: also quantize matrices whose output goes into a top-k, as that which chooses a token's experts.
      embeddings: also quantize matrices of which rows are looked up; GPTQ and AWQ round them to nearest.
      calibration_mode: "one_shot": activations of the full-precision model; "sequential": of the partly quantized one.
      max_gram_bytes: of Gram matrices at a time. With less memory the data runs through the model more often.
      threads: torch.get_num_threads() by default.
      artifact_size: also compute how large the compressed model is.

    Returns:
      A ModelQuantization for each of the quantizers.

    Cost for each quantizer: a few forward passes and the calibration data once or more; twice the model's memory, the Gram
    matrices, and nine bytes for each quantized weight.

    Raises:
      TypeError, ValueError: see quantize.
      RuntimeError: `losses` raised an exception or is not repeatable; weights are not finite; nothing to quantize.
    """
    if isinstance(quantizers, (str, dict)):
        raise TypeError(f"quantizers is {quantizers!r}; it must be a list")
    names = [_native.short_name(quantizer) for quantizer in quantizers]
    triples = _triples(overrides, names)
    check(bool, output_head=output_head, routers=routers, embeddings=embeddings, artifact_size=artifact_size)
    check(str, calibration_mode=calibration_mode)
    check(int, max_gram_bytes=max_gram_bytes)
    options = {"include": globs(include, "include"), "exclude": globs(exclude, "exclude"), "output_head": output_head, "routers": routers,
               "embeddings": embeddings, "calibration_mode": calibration_mode, "max_gram_bytes": max_gram_bytes,
               "threads": _threads(threads), "artifact_size": artifact_size}
    results = []
    for quantizer, name in zip(quantizers, names):
        found = on_copy_of(model, losses, batches, _native.quantize_model, quantizer=quantizer,
                           overrides=[triple for triple in triples if triple[2] in ("", name)], **options)
        layers = [QuantizedLayer(**layer | {"matrix": _weight_of(layer["matrix"], False)}) for layer in found.pop("layers")]
        results.append(ModelQuantization(layers={layer.name: layer for layer in layers}, **found))
    return results
