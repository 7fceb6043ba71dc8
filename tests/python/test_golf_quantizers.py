"""The quantizers of the competition Parameter Golf, as docs/quantizers.md gives them, beside their definitions."""

import numpy
import pytest
import torch

import ptqwatch

BASELINE = {"method": "rtn", "bits": 8, "group_size": -1, "narrow_range": True, "clip": "percentile", "clip_value": 99.99984,
            "scale_dtype": "f16", "round_scale_last": True, "min_scale": 1 / 127}
RECORD = {"method": "gptq", "bits": 6, "group_size": -1, "narrow_range": True, "clip": "std", "clip_value": 12.85, "scale_dtype": "f16",
          "min_tokens_ratio": 0.0}


def random_weight(rows, cols, seed):
    """Rows with ranges on both sides of 1, below which the baseline's least scale, 1/127, applies."""
    return torch.randn(rows, cols, generator=torch.Generator().manual_seed(seed)) * torch.logspace(-3, 0.5, rows)[:, None]


def trained_weight(rows, cols):
    """A few strong directions, heavy tails, rows of unequal size, and columns that stand out."""
    draw = torch.Generator().manual_seed(9)
    low_rank = torch.randn(rows, 8, generator=draw) @ torch.randn(8, cols, generator=draw)
    tails = torch.randn(rows, cols, generator=draw) / torch.rand(rows, cols, generator=draw).clamp_min(0.02).sqrt()
    weight = (0.4 * low_rank + tails) * torch.exp(0.5 * torch.randn(rows, 1, generator=draw)).clamp_min(0.6)
    weight[:, ::61] *= 4
    return weight


WEIGHTS = [random_weight(16, 512, 1), random_weight(40, 1000, 2), random_weight(64, 4096, 3), trained_weight(96, 768)]


def row_limits(weight):
    """The percentile of each row's magnitudes, in float32: what lies between the two next to the rank."""
    magnitudes = numpy.sort(weight.abs().numpy(), axis=1)
    rank = float(numpy.float32(99.99984 / 100)) * (weight.shape[1] - 1)
    below = int(rank)
    share = float(numpy.float32(rank - below))
    low, high = magnitudes[:, below], magnitudes[:, min(below + 1, weight.shape[1] - 1)]
    gap = (high - low).astype(float)
    limit = low + share * gap if share < 0.5 else high - (1 - share) * gap
    return torch.from_numpy(limit.astype(numpy.float32))


@pytest.mark.parametrize("weight", WEIGHTS, ids=lambda weight: "x".join(map(str, weight.shape)))
def test_the_baseline_is_rtn_with_a_percentile(weight):
    ours = ptqwatch.quantize(weight, **BASELINE)
    limits = row_limits(weight)
    scale = (limits / 127).clamp_min(1 / 127)
    stored = scale.half().float()
    assert torch.equal(ours.scale[:, 0], stored)
    # Earlier versions of PyTorch have the rank in float32.
    by_torch = (torch.quantile(weight.abs(), 0.9999984, dim=1) / 127).clamp_min(1 / 127)
    assert torch.allclose(ours.scale[:, 0], by_torch, rtol=2**-10, atol=0)
    assert ours.clipped_groups == len(weight) and (ours.zero == 128).all()
    clipped = torch.maximum(torch.minimum(weight, limits[:, None]), -limits[:, None])
    codes = ours.codes.int() - 128
    assert torch.equal(codes, torch.clamp(torch.round(clipped / scale[:, None]), -127, 127).int())
    assert torch.equal(ours.dequantized, codes.float() * stored[:, None])


def test_scales_rounded_first_fit_the_weights_better():
    weight = random_weight(64, 4096, 3).abs() + 1
    last = ptqwatch.quantize(weight, **BASELINE)
    first = ptqwatch.quantize(weight, **BASELINE | {"round_scale_last": False})
    assert torch.equal(first.scale, last.scale) and 0 < (first.codes != last.codes).float().mean() < 0.05
    assert (first.dequantized - weight).square().sum() < (last.dequantized - weight).square().sum()


def eliminate(weight, hessian, scale, steps):
    """Optimal brain surgery, column by column, in float64: rounds a column, and moves the others by what costs least. Returns
    the codes."""
    diagonal = hessian.diagonal()
    order = torch.argsort(diagonal, descending=True, stable=True)
    damped = (hessian + 0.01 * diagonal.mean() * torch.eye(len(hessian), dtype=torch.float64))[order][:, order]
    inverse = torch.linalg.inv(damped)
    left = weight.double()[:, order]
    codes = torch.empty(weight.shape, dtype=torch.int32)
    for k in range(left.shape[1]):
        column = left[:, k].float()
        code = torch.clamp(torch.round(column / scale), -steps, steps)
        codes[:, order[k]] = code.int()
        error = (left[:, k] - (code * scale).double()) / inverse[k, k]
        left -= error[:, None] * inverse[k]
        inverse -= torch.outer(inverse[:, k], inverse[k]) / inverse[k, k]
    return codes


@pytest.mark.parametrize("bits, clip_value", [(6, 12.85), (5, 10.0), (8, 20.0)])
def test_the_records_are_gptq_with_standard_deviations(bits, clip_value):
    steps = 2**(bits - 1) - 1
    for weight in (random_weight(48, 192, 4), trained_weight(64, 256)):
        draw = torch.Generator().manual_seed(5)
        mix = torch.eye(weight.shape[1]) + 0.3 * torch.randn(weight.shape[1], weight.shape[1], generator=draw)
        inputs = torch.randn(1500, weight.shape[1], generator=draw) @ mix
        ours = ptqwatch.quantize(weight, inputs, **RECORD | {"bits": bits, "clip_value": clip_value})
        assert ours.status == "ok"
        scale = (clip_value * weight.std(dim=1) / steps).half().float()
        assert torch.equal(ours.scale[:, 0], scale)
        deviations = weight.double().numpy().std(axis=1, ddof=1)
        assert torch.allclose(scale.double(), torch.from_numpy(clip_value * deviations / steps), rtol=2**-11)
        assert (ours.zero == 2**(bits - 1)).all() and ours.codes.min() >= 1
        x = inputs.double()
        expected = eliminate(weight, x.T @ x, scale, steps)
        assert (ours.codes.int() - 2**(bits - 1) != expected).float().mean() < 0.003


def test_a_row_without_spread_is_not_clipped():
    weight = torch.tensor([[0.0, 0, 0, 0], [3.5, 3.5, 3.5, 3.5], [0, 0, 0, -7], [1, -1, 2, -2]])
    fields = {"method": "rtn", "bits": 4, "group_size": -1, "narrow_range": True}
    by_deviations = ptqwatch.quantize(weight, clip="std", clip_value=0.1, **fields)
    plain = ptqwatch.quantize(weight, **fields)
    assert torch.equal(by_deviations.scale[:2], plain.scale[:2])
    assert by_deviations.clipped_groups == 2
    by_percentile = ptqwatch.quantize(weight, clip="percentile", clip_value=50, **fields)
    assert torch.equal(by_percentile.scale[:3], plain.scale[:3]) and by_percentile.scale[3] < plain.scale[3]


@pytest.mark.parametrize("fields, message", [
    ({"clip": "std"}, r"clip_value is 0; it must be finite and above 0 for clip std"),
    ({"clip": "percentile", "clip_value": 101}, r"clip_value is 101; it must be above 0 and at most 100 for clip percentile"),
    ({"clip_value": 3}, r"clip_value is 3; it must be 0 for clip none"),
    ({"clip": "std", "clip_value": 3, "symmetric": False}, r"clip is std; it must be none or mse with symmetric false"),
    ({"narrow_range": True, "symmetric": False}, r"narrow_range is true; it must be false with symmetric false"),
    ({"round_scale_last": True, "method": "gptq"}, r"round_scale_last is true; it must be false for gptq"),
    ({"min_scale": -1.0}, r"min_scale is -1"),
    ({"narrow_range": True, "method": "nf4"}, r"narrow_range is true; it must be false for nf4"),
    ({"clip": "std", "clip_value": 3, "format": "fp8", "method": "rtn"}, r"clip is std; it must be none or mse for fp8_e4m3"),
    ({"clip": "quantile"}, r"unknown clip search 'quantile'; known are none, mse, percentile and std"),
])
def test_mistakes_are_named(fields, message):
    with pytest.raises(ValueError, match=message):
        ptqwatch.quantize(torch.ones(4, 8), torch.ones(64, 8), **fields)


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.attn = torch.nn.Linear(32, 32, bias=False)
        self.mlp = torch.nn.Linear(32, 32, bias=False)
        self.head = torch.nn.Linear(32, 16, bias=False)

    def forward(self, x):
        return self.head(torch.tanh(self.mlp(torch.tanh(self.attn(x)))))


def losses(model, batch):
    return torch.nn.functional.cross_entropy(model(batch[0]), batch[1], reduction="none")


def test_parts_of_a_model_have_bits_of_their_own():
    torch.manual_seed(0)
    model = Block()
    batches = [(torch.randn(64, 32), torch.randint(16, (64,)))]
    overrides = [("mlp.*", RECORD | {"bits": 5}, "gptq6"), ("head.*", RECORD | {"bits": 8, "clip_value": 20.0}, "gptq6"), ("attn.*", "rtn8", "gptq3")]
    six, three = ptqwatch.quantize_model(model, losses, batches, [RECORD, "gptq3"], overrides=overrides, output_head=True)
    assert {name: layer.matrix.quantizer.split()[:2] for name, layer in six.layers.items()} == {
        "attn.weight": ["gptq", "b6"], "mlp.weight": ["gptq", "b5"], "head.weight": ["gptq", "b8"]}
    assert six.layers["head.weight"].matrix.quantizer.endswith("clip std 20 scale f16")
    assert {name: layer.matrix.quantizer.split()[:2] for name, layer in three.layers.items()} == {
        "attn.weight": ["rtn", "b8"], "mlp.weight": ["gptq", "b3"], "head.weight": ["gptq", "b3"]}
    for error, given, message in ((ValueError, [("mlp.*", "gptq5", "gptq4")], r"overrides\[0\] is for 'gptq4', which is none of the quantizers, gptq6, gptq3"),
                                  (TypeError, [("mlp.*",)], r"overrides\[0\] is \('mlp"),
                                  (TypeError, [("mlp.*", "gptq5", 6)], r"short name"),
                                  (TypeError, 3, r"overrides is 3; it must be a dict or a list of pairs")):
        with pytest.raises(error, match=message):
            ptqwatch.quantize_model(model, losses, batches, [RECORD, "gptq3"], overrides=given)
