"""Curvature as a function: closed forms, golden Hessians, mistakes."""

import math

import pytest
import torch
from safetensors import safe_open
from torch import nn

import ptqwatch
from conftest import ROOT


def regression(inputs):
    """A linear layer under the mean of (x w)^2 / 2: its Hessian is X'X / n."""
    model = nn.Linear(inputs.shape[1], 1, bias=False)
    return model, lambda net, batch: 0.5 * net(batch).square().squeeze(1)


def test_a_quadratic_has_its_closed_form():
    inputs = torch.randn(64, 12) * torch.linspace(0.2, 3, 12)
    model, losses = regression(inputs)
    hessian = (inputs.double().T @ inputs.double()) / 64
    values, vectors = torch.linalg.eigh(hessian)
    measured = ptqwatch.curvature(model, losses, [inputs], scope="all_parameters", top_eigenvalues=2, bottom_eigenvalue=True,
                                  eigenvalue_residual_ratio=1e-3, trace_relative_stderr=1e-3)
    assert [pair.value for pair in measured.top] == pytest.approx([values[-1].item(), values[-2].item()], rel=1e-3)
    assert measured.bottom[0].value == pytest.approx(values[0].item(), abs=1e-2)
    assert abs((measured.top[0].vector.double() @ vectors[:, -1]).item()) == pytest.approx(1, abs=1e-3)
    assert abs(measured.trace.value - hessian.trace().item()) <= 4 * measured.trace.stderr + 1e-3 * hessian.trace().item()
    weight = model.weight.detach().double()
    assert measured.loss == pytest.approx((0.5 * weight @ hessian @ weight.T).item(), rel=1e-5)
    torch.testing.assert_close(measured.split(measured.gradient)["weight"].double(), weight @ hessian, rtol=1e-4, atol=1e-5)
    assert measured.mode in ("retained_graph", "recomputed_graph")


class GoldenMlp(nn.Module):
    def __init__(self, file, count):
        super().__init__()
        for i in range(count):
            weight, bias = (file.get_tensor(f"param.layer{i}.{kind}").float() for kind in ("weight", "bias"))
            layer = nn.Linear(weight.shape[1], weight.shape[0])
            layer.load_state_dict({"weight": weight, "bias": bias})
            self.add_module(f"layer{i}", layer)
        self.count = count

    def forward(self, h):
        for i in range(self.count):
            h = getattr(self, f"layer{i}")(h)
            if i + 1 < self.count:
                h = h.tanh()
        return h


def test_a_network_has_the_golden_hessian():
    with safe_open(ROOT / "tests/golden/data/curvature/curvature_mlp_mse.safetensors", "pt") as file:
        metadata = file.metadata()
        model = GoldenMlp(file, len(metadata["parameter_order"].split(",")) // 2)
        batch = tuple(file.get_tensor(f"batch.{name}").float() for name in ("inputs", "targets"))
    measured = ptqwatch.curvature(model, lambda net, b: (net(b[0]) - b[1]).square().mean(1), [batch], scope="all_parameters",
                                  bottom_eigenvalue=True, eigenvalue_residual_ratio=2e-3, trace_relative_stderr=0.02,
                                  max_trace_probes=200)
    assert measured.loss == pytest.approx(float(metadata["loss"]), rel=1e-5)
    assert measured.top_eigenvalue == pytest.approx(float(metadata["lambda_max"]), rel=0.01)
    assert measured.bottom[0].value == pytest.approx(float(metadata["lambda_min"]), rel=0.01)
    assert abs(measured.trace.value - float(metadata["trace"])) <= 4 * measured.trace.stderr
    parts = [value for value, _ in measured.trace.parameters.values()]
    assert math.fsum(parts) == pytest.approx(measured.trace.value, rel=1e-9)


def network():
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))


def cross_entropy(model, batch):
    return nn.functional.cross_entropy(model(batch[0]), batch[1], reduction="none")


def batches(count=2):
    return [(torch.randn(32, 8), torch.randint(4, (32,))) for _ in range(count)]


def test_scopes_name_their_parameters():
    model, data = network(), batches()
    names = lambda **options: [name for name, *_ in ptqwatch.curvature(model, cross_entropy, data, trace=False, **options).parameters]
    assert names() == ["0.weight"]  # the last product is the output head
    assert names(scope="all_parameters") == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert names(scope="named_parameters", parameters=["2.*"]) == ["2.weight", "2.bias"]


def test_repeats_its_numbers_and_leaves_model_and_generator_alone():
    model, data = network(), batches()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    first, second = (ptqwatch.curvature(model, cross_entropy, data, seed=3) for _ in range(2))
    assert first.top_eigenvalue == second.top_eigenvalue and first.trace.value == second.trace.value
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert model.training and all(value.grad is None for value in model.parameters())


def test_an_exception_of_losses_is_the_cause():
    def losses(model, batch):
        raise KeyError("no such column")

    with pytest.raises(RuntimeError, match="no such column") as caught:
        ptqwatch.curvature(network(), losses, batches())
    assert isinstance(caught.value.__cause__, KeyError)


def test_an_interrupt_in_losses_stays_one():
    def losses(model, batch):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ptqwatch.curvature(network(), losses, batches())


@pytest.mark.parametrize("options, error, message", [
    ({"scope": "weights"}, ValueError, "weights.*quantized_weights"),
    ({"mode": "exact"}, ValueError, "exact.*retained_graph"),
    ({"top_eigenvalues": 0}, ValueError, "top_eigenvalues.* 0"),
    ({"trace_relative_stderr": -1}, ValueError, "trace_relative_stderr"),
    ({"max_trace_probes": 2}, ValueError, "max_trace_probes"),
    ({"scope": "named_parameters", "parameters": "2.*"}, TypeError, r"parameters is '2\.\*'; it must be a list of globs"),
    ({"top_eigenvalues": 1.5}, TypeError, r"^top_eigenvalues is 1\.5; it must be an int$"),
    ({"trace_relative_stderr": "0.1"}, TypeError, r"^trace_relative_stderr is '0\.1'; it must be a number$"),
    ({"trace": None}, TypeError, r"^trace is None; it must be True or False$"),
    ({"mode": None}, TypeError, r"^mode is None; it must be a str$"),
    ({"seed": -1}, ValueError, r"^seed is -1; it must be from 0"),
    ({"scope": "named_parameters", "parameters": ["nothing"]}, (RuntimeError, ValueError), "nothing"),
])
def test_mistakes_are_named(options, error, message):
    with pytest.raises(error, match=message):
        ptqwatch.curvature(network(), cross_entropy, batches(), **options)


def test_no_batches_and_no_model_are_named():
    with pytest.raises(ValueError, match="batch"):
        ptqwatch.curvature(network(), cross_entropy, [])
    with pytest.raises(TypeError, match="batches is of type Tensor"):
        ptqwatch.curvature(network(), cross_entropy, torch.zeros(3))
    with pytest.raises(TypeError, match="model is a dict"):
        ptqwatch.curvature({}, cross_entropy, batches())
    with pytest.raises(RuntimeError, match="repeat|differ"):
        noise = iter(range(1000))
        ptqwatch.curvature(network(), lambda model, batch: cross_entropy(model, batch) + next(noise), batches())


SMALL = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
         "max_position_embeddings": 32, "head_dim": 8, "tie_word_embeddings": False}
EXPERTS = {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
TRANSFORMERS = {"llama": {}, "mistral": {"sliding_window": 4}, "gemma3_text": {"sliding_window": 4}, "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4},
                "qwen3_moe": EXPERTS, "mixtral": EXPERTS, "gpt_oss": {**EXPERTS, "sliding_window": 4}}


@pytest.mark.parametrize("family", TRANSFORMERS)
def test_default_attention_has_the_curvature_of_the_written_out_one(family):
    """Fused attention has no second derivative, and differences of a mixture of experts see tokens change their experts."""
    transformers = pytest.importorskip("transformers")
    generator = torch.Generator().manual_seed(5)
    tokens = [torch.randint(64, (2, 12), generator=generator) for _ in range(4)]

    def losses(model, batch):
        logits = model(input_ids=batch).logits[:, :-1]
        return nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten(), reduction="none").view(len(batch), -1)

    def measured(attention):
        torch.manual_seed(3)
        config = transformers.AutoConfig.for_model(family, **{**SMALL, **TRANSFORMERS[family]})
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=attention)
        return ptqwatch.curvature(model.float(), losses, tokens, eigenvalue_residual_ratio=1e-3, max_eigenvalue_products=60,
                                   max_trace_probes=8)

    eager, default = measured("eager"), measured(None)
    assert default.mode == eager.mode == "retained_graph"
    assert default.top_eigenvalue == pytest.approx(eager.top_eigenvalue, rel=1e-4)
    assert default.trace.value == pytest.approx(eager.trace.value, rel=1e-4)
