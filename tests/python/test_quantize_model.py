"""Quantization of a whole model."""

import copy

import pytest
import torch
from torch import nn

import ptqwatch


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(16, 32)
        self.up = nn.Linear(32, 64)
        self.down = nn.Linear(64, 32, bias=False)
        self.head = nn.Linear(32, 16, bias=False)

    def forward(self, x):
        return self.head(self.down(torch.relu(self.up(self.embedding(x)))))


def losses(model, batch):
    x, y = batch
    return nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction="none").view_as(y)


def batches(count=3):
    return [(torch.randint(16, (8, 12)), torch.randint(16, (8, 12))) for _ in range(count)]


def inputs_of(model, layer, data):
    """The inputs of a layer, as its forward pass sees them."""
    found = []
    handle = layer.register_forward_pre_hook(lambda _, arguments: found.append(arguments[0].detach()))
    with torch.no_grad():
        for x, _ in data:
            model(x)
    handle.remove()
    return found


def test_gives_the_codes_of_quantize_on_the_layers_inputs():
    model, data = Net(), batches()
    (quantized,) = ptqwatch.quantize_model(model, losses, data, [{"method": "gptq", "bits": 3, "group_size": 16}])
    assert list(quantized.layers) == ["up.weight", "down.weight"]
    for name, layer in (("up.weight", model.up), ("down.weight", model.down)):
        alone = ptqwatch.quantize(layer.weight, inputs_of(model, layer, data), bits=3, group_size=16)
        assert torch.equal(quantized.layers[name].matrix.codes, alone.codes), name
        assert quantized.layers[name].tokens == 3 * 8 * 12 and quantized.layers[name].shape == layer.weight.shape
    assert set(quantized.skipped) == {"embedding.weight", "up.bias", "head.weight"}
    assert quantized.covered_parameters == 2 * 32 * 64 and quantized.parameters == sum(p.numel() for p in model.parameters())
    assert quantized.unseen == 0


def test_padding_that_pytorch_leaves_out_is_in_no_gram():
    class Encoder(nn.Module):
        def __init__(self, nested):
            super().__init__()
            torch.manual_seed(3)
            layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
            self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=nested)

        def forward(self, x, lengths):
            padding = torch.arange(x.shape[1]) >= lengths[:, None]
            return self.encoder(x, src_key_padding_mask=padding).masked_fill(padding[..., None], 0)

    def losses(model, batch):
        return model(*batch).square().sum((1, 2))

    data = [(torch.randn(3, 5, 16), torch.tensor([5, 3, 4])) for _ in range(3)]
    (nested,), (padded,) = (ptqwatch.quantize_model(Encoder(nested), losses, data, ["rtn4"], output_head=True) for nested in (True, False))
    assert list(nested.layers) == list(padded.layers) and len(nested.layers) == 8
    assert {layer.tokens for layer in nested.layers.values()} == {3 * 12}
    assert {layer.tokens for layer in padded.layers.values()} == {3 * 15}
    curvature = ptqwatch.curvature(Encoder(True), losses, data)
    assert curvature.top_eigenvalue == pytest.approx(ptqwatch.curvature(Encoder(False), losses, data).top_eigenvalue, rel=1e-3)


def test_says_what_share_it_cannot_quantize():
    class Grouped(Net):
        def __init__(self):
            super().__init__()
            self.mix = nn.Conv1d(64, 64, 1, groups=4, bias=False)

        def forward(self, x):
            h = torch.relu(self.up(self.embedding(x)))
            return self.head(self.down(self.mix(h.mT).mT))

    (quantized,) = ptqwatch.quantize_model(Grouped(), losses, batches(), ["rtn4"])
    assert quantized.skipped["mix.weight"] == "a convolution in 4 groups"
    assert quantized.unseen == 64 * 16 / (64 * 16 + 2 * 32 * 64)


def test_load_into_writes_the_dequantized_weights():
    model, data = Net(), batches()
    fine, coarse = ptqwatch.quantize_model(model, losses, data, ["rtn8", "rtn2"])
    loss = {}
    for name, quantized in (("exact", None), ("fine", fine), ("coarse", coarse)):
        net = copy.deepcopy(model)
        if quantized:
            quantized.load_into(net)
            assert torch.equal(net.up.weight, quantized.layers["up.weight"].weight)
        with torch.no_grad():
            loss[name] = torch.stack([losses(net, batch).mean() for batch in data]).mean().item()
    assert 0 < 10 * abs(loss["fine"] - loss["exact"]) < abs(loss["coarse"] - loss["exact"])
    with pytest.raises(ValueError, match="no parameter 'up.weight'"):
        fine.load_into(nn.Linear(2, 2))


def test_load_into_goes_through_wrappers_and_writes_all_or_nothing():
    model, data = Net(), batches()
    (quantized,) = ptqwatch.quantize_model(model, losses, data, ["rtn2"])
    wrapped = torch.compile(copy.deepcopy(model), backend="eager")
    quantized.load_into(wrapped)
    assert torch.equal(wrapped.down.weight, quantized.layers["down.weight"].weight)
    other = copy.deepcopy(model)
    other.down = nn.Linear(64, 1, bias=False)
    with pytest.raises(ValueError, match=r"'down.weight' has shape \[1, 64\]; it must be \[32, 64\]"):
        quantized.load_into(other)
    assert torch.equal(other.up.weight, model.up.weight)


def test_load_into_writes_parts_of_parameters():
    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.randn(3, 32, 32))
            self.head = nn.Linear(32, 16, bias=False)

        def forward(self, x):
            x = nn.functional.one_hot(x, 32).float()
            return self.head(x @ self.w[0] + nn.functional.linear(x, self.w[1]) + x[..., :16] @ self.w[2][:16])

    model = Experts()
    (quantized,) = ptqwatch.quantize_model(model, losses, batches(), ["rtn2"])
    assert sorted(quantized.layers) == ["w[0]", "w[1]", "w[2][0:16]"]
    other = copy.deepcopy(model)
    quantized.load_into(other)
    for name, part in (("w[0]", other.w[0]), ("w[1]", other.w[1]), ("w[2][0:16]", other.w[2, :16])):
        assert torch.equal(part, quantized.layers[name].weight)
    assert torch.equal(other.w[2, 16:], model.w[2, 16:])
    for w in (torch.zeros(1, 32, 32), torch.zeros(3)):
        other.w = nn.Parameter(w)
        with pytest.raises(ValueError, match=r"no parameter 'w\[|'w\[0\]' has shape \[\]"):
            quantized.load_into(other)


def test_layers_and_overrides_choose():
    model, data = Net(), batches()
    (chosen,) = ptqwatch.quantize_model(model, losses, data, ["rtn4"], include=["*.weight"], exclude=["up.*"], output_head=True,
                                        overrides={"head.*": "rtn8"})
    assert {name: layer.matrix.quantizer.split()[1] for name, layer in chosen.layers.items()} == {"down.weight": "b4", "head.weight": "b8"}


def test_convolutions_keep_their_shape():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 4))
    data = [(torch.randn(4, 3, 8, 8), torch.randint(4, (4,)))]
    (quantized,) = ptqwatch.quantize_model(
        model, lambda net, batch: nn.functional.cross_entropy(net(batch[0]), batch[1], reduction="none"), data, ["rtn4"])
    layer = quantized.layers["0.weight"]
    assert layer.weight.shape == (8, 3, 3, 3) and layer.matrix.codes.shape == (8, 27)


def test_leaves_the_model_and_its_mode_alone():
    model = Net()
    before = copy.deepcopy(model.state_dict())
    ptqwatch.quantize_model(model, losses, batches(), ["gptq4"], calibration_mode="sequential")
    assert model.training and all(torch.equal(before[name], value) for name, value in model.state_dict().items())


@pytest.mark.parametrize("arguments, options, error, message", [
    (("gptq4",), {}, TypeError, r"quantizers is 'gptq4'; it must be a list"),
    ((["gptq"],), {}, ValueError, r"'gptq' is not a quantizer"),
    (([4],), {}, TypeError, r"a quantizer is 4"),
    (([{"bits": 9}],), {}, ValueError, r"bits is 9"),
    ((["rtn4"],), {"overrides": {"up.*": "rtn9"}}, ValueError, r"9"),
    ((["rtn4"],), {"overrides": "up.*"}, TypeError, r"overrides is 'up\.\*'; it must be a dict or a list of pairs"),
    ((["rtn4"],), {"include": "up.*"}, TypeError, r"include is 'up\.\*'; it must be a list of globs"),
    ((["rtn4"],), {"exclude": None}, TypeError, r"exclude is None; it must be a list of globs"),
    ((["rtn4"],), {"max_gram_bytes": 1e9}, TypeError, r"max_gram_bytes is 1000000000\.0; it must be an int"),
    ((["rtn4"],), {"include": ["nothing"]}, RuntimeError, r"'up.weight': matches no include pattern"),
    ((["rtn4"],), {"calibration_mode": "twice"}, ValueError, r"twice.*one_shot"),
])
def test_mistakes_are_named(arguments, options, error, message):
    with pytest.raises(error, match=message):
        ptqwatch.quantize_model(Net(), losses, batches(), *arguments, **options)


class Tied(nn.Module):
    """The embedding is the output head, too."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(16, 32)
        self.mix = nn.Linear(32, 32, bias=False)

    def forward(self, x):
        return nn.functional.linear(torch.relu(self.mix(self.embedding(x))), self.embedding.weight)


def test_a_tied_head_is_one_matrix():
    torch.manual_seed(0)
    model, data = Tied(), batches()
    (without,) = ptqwatch.quantize_model(model, losses, data, ["gptq4"])
    assert without.skipped["embedding.weight"] == "output head, tied to an embedding" and without.unseen == 0
    (quantized,) = ptqwatch.quantize_model(model, losses, data, [{"method": "gptq", "bits": 3, "group_size": 16}], output_head=True)
    assert list(quantized.layers) == ["mix.weight", "embedding.weight"] and not quantized.skipped
    with torch.no_grad():
        of_head = [torch.relu(model.mix(model.embedding(x))) for x, _ in data]
    alone = ptqwatch.quantize(model.embedding.weight, of_head, bits=3, group_size=16)
    assert torch.equal(quantized.layers["embedding.weight"].matrix.codes, alone.codes)


def test_embeddings_are_rounded_to_nearest_if_asked_for():
    model, data = Net(), batches()
    gptq, rtn = ptqwatch.quantize_model(model, losses, data, ["gptq4", "rtn4"], embeddings=True)
    assert list(gptq.layers) == ["embedding.weight", "up.weight", "down.weight"] and "head.weight" in gptq.skipped
    assert torch.equal(gptq.layers["embedding.weight"].weight, rtn.layers["embedding.weight"].weight)
    assert gptq.layers["embedding.weight"].matrix.status == "ok"
    alone = ptqwatch.quantize(model.embedding.weight, method="rtn", bits=4)
    assert torch.equal(rtn.layers["embedding.weight"].weight, alone.dequantized)
    gptq.load_into(model)
    assert torch.equal(model.embedding.weight, alone.dequantized)
    with pytest.raises(TypeError, match="embeddings is 1"):
        ptqwatch.quantize_model(model, losses, data, ["rtn4"], embeddings=1)


def test_a_loop_over_one_block_has_the_inputs_of_all_its_passes():
    class Looped(Net):
        def forward(self, x):
            h = self.embedding(x)
            for _ in range(3):
                h = h + self.down(torch.relu(self.up(h)))
            return self.head(h)

    model, data = Looped(), batches()
    (quantized,) = ptqwatch.quantize_model(model, losses, data, [{"method": "gptq", "bits": 3, "group_size": 16}])
    for name, layer in (("up.weight", model.up), ("down.weight", model.down)):
        inputs = inputs_of(model, layer, data)
        assert len(inputs) == 3 * len(data)
        alone = ptqwatch.quantize(layer.weight, inputs, bits=3, group_size=16)
        assert torch.equal(quantized.layers[name].matrix.codes, alone.codes), name
        assert quantized.layers[name].tokens == 3 * 3 * 8 * 12


def rounded(weight):
    scale = weight.abs().amax(1, keepdim=True) / 7
    return torch.round(weight / scale) * scale


class StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(context, weight):
        return rounded(weight)

    @staticmethod
    def backward(context, gradient):
        return gradient


def overwritten(weight):
    copy_of_it = weight.clone()
    copy_of_it.copy_(rounded(weight))
    return copy_of_it


def overwritten_without_a_version(weight):
    copy_of_it = weight.bfloat16().float()
    copy_of_it.data.copy_(rounded(weight))
    return copy_of_it


@pytest.mark.parametrize("fake_quantize, reason", [
    (StraightThrough.apply, "goes into aten::abs, which is not seen through"),
    (lambda weight: weight + (rounded(weight) - weight).detach(), "goes into aten::abs, which is not seen through"),
    (lambda weight: torch.fake_quantize_per_tensor_affine(weight, 0.1, 0, -8, 7), "goes into aten::fake_quantize_per_tensor_affine_cachemask"),
    (overwritten, "a copy of it that was changed is used"),
    (overwritten_without_a_version, "a copy of it that was changed is used"),
])
def test_weights_that_the_forward_pass_quantizes_are_left_out_unless_it_trains(fake_quantize, reason):
    class QuantizationAware(Net):
        only_in_training = False

        def forward(self, x):
            h = torch.relu(self.up(self.embedding(x)))
            aware = self.training or not self.only_in_training
            return self.head(nn.functional.linear(h, fake_quantize(self.down.weight) if aware else self.down.weight))

    model, data = QuantizationAware(), batches()
    (quantized,) = ptqwatch.quantize_model(model, losses, data, ["rtn4"])
    assert list(quantized.layers) == ["up.weight"] and quantized.unseen == 0.5
    assert quantized.skipped["down.weight"].startswith(reason)

    model.only_in_training = True
    (quantized,) = ptqwatch.quantize_model(model, losses, data, ["rtn4"])
    alone = ptqwatch.quantize(model.down.weight, method="rtn", bits=4)
    assert torch.equal(quantized.layers["down.weight"].weight, alone.dequantized) and quantized.unseen == 0
