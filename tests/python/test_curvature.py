"""Curvature as a function: closed forms, golden Hessians, mistakes."""

import math

import pytest
import small_models
import tiny
import torch
import torch.nn.attention.flex_attention
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


def test_a_loss_that_takes_a_gradient_is_told_how():
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))
    batch = [torch.randn(16, 3)]

    def penalty(net, x):
        x = x.clone().requires_grad_(True)
        slope, = torch.autograd.grad(net(x).sum(), x, create_graph=True)
        return (slope.norm(dim=1) - 1).square()

    with pytest.raises(RuntimeError, match=r"does not require grad(.|\n)*torch\.enable_grad"):
        ptqwatch.curvature(model, penalty, batch, scope="all_parameters")
    measured = ptqwatch.curvature(model, torch.enable_grad()(penalty), batch, scope="all_parameters")
    assert measured.mode == "retained_graph" and math.isfinite(measured.top_eigenvalue)


@pytest.mark.parametrize("padding", [0, None])
def test_a_padding_row_that_is_also_a_token_keeps_the_exact_mode(padding):
    torch.manual_seed(1)
    embedding = nn.Embedding(20, 8, padding_idx=padding)
    with torch.no_grad():
        embedding.weight[0] = torch.randn(8)
    model = nn.Sequential(embedding, nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 20))
    tokens = torch.where(torch.rand(6, 12) < 0.3, 0, torch.randint(1, 20, (6, 12)))

    def losses(net, ids):
        return nn.functional.cross_entropy(net(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten(), reduction="none").view(6, -1)

    measured = ptqwatch.curvature(model, losses, [tokens], scope="all_parameters")
    assert measured.mode == "retained_graph", measured.mode_detail


def test_a_detour_around_the_gradient_is_named():
    """The gradient by autograd takes the gate for a constant: it is that of no loss."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8))

    def losses(net, x):
        h = net[:2](x)
        return (net[2](h) * h.detach()).square().sum(1)

    with pytest.raises(RuntimeError, match="no exact products: .*differentiates wrongly"):
        ptqwatch.curvature(model, losses, [torch.randn(32, 6)], scope="all_parameters")


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


PRECISE = {"eigenvalue_residual_ratio": 1e-3}


def measured(model, losses=small_models.losses, data=None, **options):
    return ptqwatch.curvature(model, losses, data or small_models.tokens(), max_eigenvalue_products=60, max_trace_probes=8,
                              **{**PRECISE, **options})


@pytest.mark.parametrize("family", small_models.FAMILIES)
def test_default_attention_has_the_curvature_of_the_written_out_one(family):
    """Fused attention has no second derivative, and differences of a mixture of experts see tokens change their experts."""
    pytest.importorskip("transformers")
    eager, default = (measured(small_models.make(family, attention)) for attention in ("eager", None))
    assert default.mode == eager.mode == "retained_graph"
    assert default.top_eigenvalue == pytest.approx(eager.top_eigenvalue, rel=1e-4)
    assert default.trace.value == pytest.approx(eager.trace.value, rel=1e-4)


def test_an_encoder_with_padding_masks_has_the_curvature_of_its_written_out_attention():
    transformers = pytest.importorskip("transformers")

    def losses(model, batch):
        ids, mask = batch
        logits = model(input_ids=ids, attention_mask=mask).logits
        values = nn.functional.cross_entropy(logits.flatten(0, 1), (7 * ids.flatten()) % small_models.VOCABULARY, reduction="none")
        return values.view_as(ids), mask.float()

    generator = torch.Generator().manual_seed(5)
    data = []
    for lengths in ((12, 7, 3), (5, 12, 9)):
        ids = torch.randint(1, small_models.VOCABULARY, (3, 12), generator=generator)
        data.append((ids, (torch.arange(12) < torch.tensor(lengths)[:, None]).long()))
    config = transformers.AutoConfig.for_model("bert", **small_models.SMALL)

    def of(attention):
        torch.manual_seed(3)
        return measured(transformers.AutoModelForMaskedLM.from_config(config, attn_implementation=attention), losses, data)

    eager, default = of("eager"), of("sdpa")
    assert default.mode == "retained_graph"
    assert default.top_eigenvalue == pytest.approx(eager.top_eigenvalue, rel=1e-4)
    assert default.trace.value == pytest.approx(eager.trace.value, rel=1e-4)


def watched(model, **options):
    """The report of one snapshot."""
    with ptqwatch.watch(model, **{"losses": small_models.losses, "probe": small_models.tokens(), "every": 1, "mode": "thread",
                                  "on_failure": "error", "max_overhead": 1.0, "adapt_plan": False, "quantizers": "rtn4,gptq3",
                                  "max_probe_tokens": 1 << 20, "curvature": PRECISE, **options}) as monitor:
        monitor.step(1, 1e-3)
        assert monitor.finish(240)
        return monitor.latest()


@pytest.mark.parametrize("family", ["gpt2", "qwen3_moe"])
def test_a_monitor_has_the_curvature_and_predictions_of_written_out_attention(family):
    pytest.importorskip("transformers")
    eager, default = (watched(small_models.make(family, attention)) for attention in ("eager", None))
    right = measured(small_models.make(family, "eager"), trace=False)
    for report in (eager, default):
        assert (report["curvature"]["status"], report["curvature"]["mode"]) == ("ok", "retained_graph")
        assert report["curvature"]["top_eigenvalue"] == pytest.approx(right.top_eigenvalue, rel=1e-4)
        assert right.top_eigenvalue <= (1 + 1e-4) * report["curvature"]["top_eigenvalue_upper"]
    assert default["curvature"]["trace"] == pytest.approx(eager["curvature"]["trace"], rel=1e-4)
    for term in ("gradient_term_nats", "curvature_term_nats", "predicted_delta_nats", "curvature_along_error"):
        assert default["quantization"][0][term] == pytest.approx(eager["quantization"][0][term], rel=1e-4), term


def test_a_worker_has_the_curvature_of_a_thread():
    pytest.importorskip("transformers")
    model = small_models.make("qwen3_moe")
    thread = watched(model)
    worker = watched(model, mode="process", losses="small_models:losses", build="small_models:make_qwen3_moe")
    assert worker["curvature"]["mode"] == "retained_graph"
    assert worker["curvature"] == thread["curvature"]
    assert worker["quantization"] == thread["quantization"]


def call_the_kernel(module, query, key, value, mask, scaling=None, **_):
    """Attention by a fused kernel, not by the operator that chooses one."""
    key, value = (x.repeat_interleave(query.shape[1] // key.shape[1], 1) for x in (key, value))
    out, _ = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(query, key, value, 0.0, True, scale=scaling)
    return out.transpose(1, 2).contiguous(), None


def test_a_fused_kernel_that_a_model_calls_is_named():
    transformers = pytest.importorskip("transformers")
    transformers.AttentionInterface.register("the_kernel", call_the_kernel)
    eager, kernel = (measured(small_models.make("llama", attention)) for attention in ("eager", "the_kernel"))
    assert eager.mode_detail == ""
    assert kernel.mode == "finite_difference"
    assert "_scaled_dot_product_flash_attention_for_cpu_backward is not implemented" in kernel.mode_detail
    assert kernel.top_eigenvalue == pytest.approx(eager.top_eigenvalue, rel=0.01)
    report = watched(small_models.make("llama", "the_kernel"))["curvature"]
    assert (report["status"], report["mode"], report["mode_detail"]) == ("ok", kernel.mode, kernel.mode_detail)


@pytest.mark.parametrize("seed", [3, 103, 303])
def test_differences_of_a_mixture_are_right_or_refused(seed):
    """They see tokens change their experts: of these three models, 103 and 303 are refused on most machines."""
    transformers = pytest.importorskip("transformers")
    transformers.AttentionInterface.register("the_kernel", call_the_kernel)
    right = measured(small_models.make("qwen3_moe", seed=seed), trace=False).top_eigenvalue
    model = small_models.make("qwen3_moe", "the_kernel", seed)
    try:
        assert measured(model, trace=False).top_eigenvalue == pytest.approx(right, rel=0.02)
    except RuntimeError as error:
        assert "finite difference" in str(error)
    report = watched(model)["curvature"]
    if report["status"] == "ok":
        assert report["top_eigenvalue"] == pytest.approx(right, rel=0.02)
    else:
        assert "finite difference" in report["status_detail"]
        assert report.get("top_eigenvalue") is None


class FlexModel(tiny.TinyModel):
    def forward(self, ids):
        h = self.embedding(ids)
        heads = self.up(self.norm(h)).unflatten(-1, (4, 16)).transpose(1, 2)
        attended = torch.nn.attention.flex_attention.flex_attention(heads, heads, heads)
        return self.head(h + self.down(attended.transpose(1, 2).flatten(2)))


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_attention_without_a_gradient_is_named_and_the_rest_measured():
    report = watched(FlexModel(), losses=tiny.token_losses, probe=tiny.probe_batches())
    assert [row["status"] for row in report["quantization"]] == ["ok", "ok"]
    assert report["curvature"]["status"] == "disabled"
    assert "FlexAttention does not support backward on CPU" in report["curvature"]["status_detail"]
    with pytest.raises(RuntimeError, match="FlexAttention does not support backward on CPU"):
        ptqwatch.curvature(FlexModel(), tiny.token_losses, tiny.probe_batches())
