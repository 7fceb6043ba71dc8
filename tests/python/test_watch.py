"""ptqwatch.watch in a thread of the trainer's process."""

import copy
import json
import random
import re
import sys
import threading
import time
import types

import numpy
import pytest
import tiny
import torch
from torch import nn

import ptqwatch
from conftest import eventually, page_of
from ptqwatch import _monitor

PROBE = tiny.probe_batches()
# The tests need a few reports soon, not a light load.
FAST = {"max_overhead": 1.0, "adapt_plan": False, "quantizers": "rtn3,gptq4", "max_probe_tokens": 1 << 20}


def watch(model, **options):
    arguments = {"losses": tiny.token_losses, "probe": PROBE, "every": 10, "mode": "thread", "on_failure": "error", **FAST}
    return ptqwatch.watch(model, **{**arguments, **options})


def state_of(model):
    """Every bit that training may change."""
    return [tensor.clone() for tensor in model.state_dict().values()] + [torch.get_rng_state()]


def same_bits(first, second):
    return len(first) == len(second) and all(torch.equal(a, b) for a, b in zip(first, second))


def trained(steps=40, wrap=None, **options):
    """The end of a training run: watched, if there are options."""
    torch.manual_seed(0)
    random.seed(0)
    numpy.random.seed(0)
    model = tiny.make_model()
    wrapped = wrap(model) if wrap else None
    if not options:
        tiny.train(model, steps, wrapped=wrapped)
        return state_of(model), random.getstate(), numpy.random.get_state()[1].tolist()
    with watch(model if wrapped is None else wrapped, **options) as monitor:
        tiny.train(model, steps, monitor, wrapped)
    assert monitor.latest()["step"] == steps
    return state_of(model), random.getstate(), numpy.random.get_state()[1].tolist()


def assert_same_end(first, second):
    assert same_bits(first[0], second[0])
    assert first[1:] == second[1:]


def test_reports_without_changing_a_bit():
    assert_same_end(trained(), trained(build=tiny.make_model))


def test_reports_on_a_copy_of_the_model():
    assert_same_end(trained(), trained(build=None))


def test_reports_beside_compiled_training():
    def compiled(model):
        torch._dynamo.reset()
        return torch.compile(model, backend="aot_eager")

    assert_same_end(trained(wrap=compiled), trained(wrap=compiled, build=None))


def test_a_build_that_draws_changes_nothing():
    def build():
        random.random()
        numpy.random.rand()
        torch.manual_seed(7)
        return tiny.make_model()

    assert_same_end(trained(), trained(build=build))


def test_reports_have_the_numbers_of_the_journal(tmp_path):
    model = tiny.make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    with watch(model, run_dir=tmp_path / "run", optimizer=optimizer) as monitor:
        assert monitor.latest() is None
        tiny.train(model, 20, monitor)
        with monitor.idle():
            assert monitor.finish()
        newest = monitor.latest()
        assert monitor.status()["steps_total"] == 20
        assert monitor.served["state"] == "none"
        assert "up.weight" in monitor.describe()
        assert json.loads((tmp_path / "run/status.json").read_text())["run"]["optimizer"] == "adamw"
    assert newest["step"] == 20
    assert newest["tokens"] == 20 * 8 * tiny.LENGTH
    assert newest["training_loss_nats"] > 0
    assert {(row["method"], row["bits"]) for row in newest["quantization"]} == {("rtn", 3), ("gptq", 4)}
    assert all(row["error_ratio"] > -1 for row in newest["quantization"])
    assert newest["curvature"]["top_eigenvalue"] > 0
    assert newest["curvature"]["mode"] == "retained_graph"
    reports = [report for report in ptqwatch.read_run(tmp_path / "run") if report["sequence"] == newest["sequence"]]
    assert tiny.without_layers(reports) == [tiny.without_layers(newest)]
    for layer, kept in zip(newest["quantization"][0]["layers"], reports[0]["quantization"][0]["layers"], strict=True):
        assert kept == layer | {key: pytest.approx(value, rel=5e-3) for key, value in layer.items() if isinstance(value, float)}


class MuonWithAdam(torch.optim.SGD):
    """Its name is that of a family without a formula."""


@pytest.mark.parametrize("mode", ["thread", "process"])
def test_an_optimizer_without_a_formula_is_named(tmp_path, mode):
    model = tiny.make_model()
    options = {} if mode == "thread" else {"build": "tiny:make_model", "losses": "tiny:token_losses"}
    with watch(model, run_dir=tmp_path, optimizer=MuonWithAdam(model.parameters(), lr=1e-2), mode=mode, **options) as monitor:
        tiny.train(model, 10, monitor)
        assert monitor.finish()
    curvature = ptqwatch.read_run(tmp_path)[-1]["curvature"]
    assert curvature["optimizer"] == "muon"
    assert "edge_of_stability_ratio" not in curvature
    assert curvature["edge_of_stability_detail"] == "there is no formula for muon"
    assert json.loads((tmp_path / "status.json").read_text())["run"]["optimizer"] == "muon"


def test_names_go_through_wrappers():
    model = tiny.make_model()
    model.up = torch.compile(model.up, backend="eager")
    with watch(torch.nn.DataParallel(model) if torch.cuda.is_available() else model) as monitor:
        assert "'up.weight'" in monitor.describe() or "up.weight" in monitor.describe()
        assert "_orig_mod" not in monitor.describe()


def test_parameters_that_a_model_lists_in_a_way_of_its_own_are_watched():
    class Model(tiny.TinyModel):
        def __init__(self):
            super().__init__()
            self.hidden = [nn.Linear(16, 16)]  # no submodule

        def named_parameters(self, *arguments, **names):
            yield from super().named_parameters(*arguments, **names)
            yield "hidden.weight", self.hidden[0].weight

        def forward(self, ids):
            return self.hidden[0](super().forward(ids))

    model = Model()
    with watch(model, every=1) as monitor, torch.no_grad():
        model.hidden[0].weight.mul_(0.5)
        monitor.step(1, 1e-3)
        monitor.finish()
    with torch.no_grad():
        loss = torch.cat([tiny.token_losses(model.eval(), batch).flatten() for batch in PROBE]).mean()
    assert monitor.latest()["probe_loss_nats"] == pytest.approx(loss.item(), rel=1e-5)


def test_tied_weights_are_one():
    class Tied(tiny.TinyModel):
        def __init__(self):
            super().__init__()
            self.head.weight = self.embedding.weight

    model = Tied()
    with watch(model) as monitor:
        tiny.train(model, 10, monitor)
    newest = monitor.latest()
    assert newest["quantization"][0]["status"] == "ok"


def probe_loss(model):
    with torch.no_grad():
        return torch.cat([tiny.token_losses(model.eval(), batch) for batch in PROBE]).double().mean().item()


@pytest.mark.parametrize("mode", ["thread", "process"])
@pytest.mark.parametrize("kind", ["state dict", "AveragedModel"])
def test_an_average_that_the_trainer_keeps_is_measured(mode, kind):
    torch.manual_seed(0)
    model = tiny.make_model()
    swa_utils = torch.optim.swa_utils
    if kind == "AveragedModel":
        average = swa_utils.AveragedModel(model, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.9), use_buffers=True)
        measured, update = average.module, average.update_parameters
    else:
        average = measured = copy.deepcopy(model)
        state = average.state_dict()  # its tensors are the module's

        @torch.no_grad()
        def update(model):
            for name, value in model.state_dict().items():
                state[name].mul_(0.9).add_(value, alpha=0.1)

    options = {} if mode == "thread" else {"build": "tiny:make_model", "losses": "tiny:token_losses"}
    with watch(average, mode=mode, run_id="average of 10 steps", curvature={"enabled": False}, **options) as monitor:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        for step in range(1, 11):
            tiny.token_losses(model, tiny.draw(8, step)).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            update(model)
            monitor.step(step, lr=1e-2)
        assert monitor.finish()
    newest = monitor.latest()
    assert newest["step"] == 10 and newest["run_id"] == "average of 10 steps"
    assert newest["probe_loss_nats"] == pytest.approx(probe_loss(measured), abs=1e-6)
    assert abs(newest["probe_loss_nats"] - probe_loss(model)) > 1e-3
    assert newest["skipped_layers"][0]["name"] == "embedding.weight"


class TiedModel(tiny.TinyModel):
    def __init__(self):
        super().__init__()
        self.head.weight = self.embedding.weight


@pytest.mark.parametrize("tied", [True, False])
def test_the_measured_loss_is_that_of_quantized_embeddings(tied):
    torch.manual_seed(0)
    model = TiedModel() if tied else tiny.make_model()
    chosen = {"output_head": tied, "embeddings": not tied}
    with watch(model, layers=chosen, curvature={"enabled": False}) as monitor:
        tiny.train(model, 10, monitor)
        assert monitor.finish()
    for row in monitor.latest()["quantization"]:
        assert {layer["name"] for layer in row["layers"]} == {"embedding.weight", "up.weight", "down.weight"}
        (quantized,) = ptqwatch.quantize_model(model, tiny.token_losses, PROBE, [f"{row['method']}{row['bits']}"], **chosen)
        other = copy.deepcopy(model)
        quantized.load_into(other)
        assert not torch.equal(other.embedding.weight, model.embedding.weight)
        assert torch.equal(other.head.weight, other.embedding.weight if tied else model.head.weight)
        assert row["loss_nats"] == pytest.approx(probe_loss(other), abs=1e-6)


class SwitchedModel(tiny.TinyModel):
    """Goes through its block twice once the trainer says so."""

    def __init__(self):
        super().__init__()
        self.looping = False
        self.register_buffer("is_looping", torch.zeros(()), persistent=False)

    def switch(self):
        self.looping = True
        self.is_looping.fill_(1)

    def forward(self, ids):
        h = self.embedding(ids)
        for _ in range(2 if self.looping else 1):
            h = h + self.scale * self.down(torch.relu(self.up(self.norm(h))))
        return self.head(h)


def losses_as_switched(model, batch):
    model.looping = bool(model.is_looping)
    return tiny.token_losses(model, batch)


def test_a_buffer_tells_the_replica_that_the_forward_pass_has_changed(caplog):
    torch.manual_seed(0)
    model = SwitchedModel()
    with watch(model, losses=losses_as_switched, every=5, curvature={"enabled": False}) as monitor:
        for step, tokens in ((5, 2 * 16 * tiny.LENGTH), (10, 2 * 2 * 16 * tiny.LENGTH)):
            monitor.step(step, lr=1e-2)
            assert monitor.finish()
            newest = monitor.latest()
            assert newest["step"] == step and newest["quantization"][1]["layers"][0]["tokens"] == tokens
            assert newest["probe_loss_nats"] == pytest.approx(probe_loss(model), abs=1e-6)
            model.switch()
    said = [record.getMessage() for record in caplog.records if "'looping'" in record.getMessage()]
    assert len(said) == 1 and said[0].startswith("'looping' of the model has become True")


@pytest.mark.parametrize("arranged", [
    lambda x, y: {"x": x, "y": y},
    lambda x, y: [x, y],
    lambda x, y: torch.stack([x, y], 1),
])
def test_batches_arrive_as_they_were_given(arranged):
    def losses(model, batch):
        assert type(batch) is type(arranged(*PROBE[0]))
        if isinstance(batch, dict):
            x, y = batch["x"], batch["y"]
        else:
            x, y = batch if isinstance(batch, list) else batch.unbind(1)
        return tiny.token_losses(model, (x, y))

    model = tiny.make_model()
    with watch(model, losses=losses, probe=[arranged(*batch) for batch in PROBE]) as monitor:
        tiny.train(model, 10, monitor)
    assert monitor.latest()["probe_tokens"] == 32 * tiny.LENGTH


def test_losses_may_have_weights_and_answers():
    def losses(model, batch):
        x, y = batch
        logits = model(x)
        values = torch.nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="none").view_as(y)
        weights = torch.ones_like(values)
        weights[:, 0] = 0
        return {"values": values, "weights": weights, "correct": logits.argmax(-1) == y}

    model = tiny.make_model()
    with watch(model, losses=losses) as monitor:
        tiny.train(model, 10, monitor)
    newest = monitor.latest()
    assert newest["probe_tokens"] == 32 * (tiny.LENGTH - 1)
    assert 0 < newest["probe_accuracy_ratio"] < 1


@pytest.mark.parametrize("options, error, words", [
    ({"max_overhed": 0.1}, TypeError, ["max_overhed = 0.1", "max_overhead"]),
    ({"max_overhead": "a"}, TypeError, ["max_overhead = 'a'", "number"]),
    ({"max_overhead": True}, TypeError, ["max_overhead = True", "number"]),
    ({"seed": -1}, ValueError, ["seed = -1"]),
    ({"seed": 1.5}, TypeError, ["seed = 1.5", "integer"]),
    ({"curvature": {"scop": "all"}}, TypeError, ["curvature['scop'] = 'all'", "curvature['scope']"]),
    ({"curvature": {"scope": "everything"}}, ValueError, ["everything"]),
    ({"curvature": False}, TypeError, ["curvature = False", "dict"]),
    ({"quantizers": "gptq5x"}, ValueError, ["gptq5x"]),
    ({"quantizers": [{"method": "gptq", "bit": 4}]}, TypeError, ["bit", "bits"]),
    ({"overrides": [("head", "rtn4", 1)]}, TypeError, ["overrides[0][2] = 1", "string"]),
    ({"overrides": [("head",)]}, TypeError, ["overrides[0]", "pair"]),
    ({"overrides": [("head", "rtn8", "gptq5")]}, ValueError, ["overrides['head'].of = 'gptq5'", "rtn3, gptq4"]),
    ({"overrides": {"head": "rtn8"}}, ValueError, ["overrides['head']", "rtn8 is none of the quantizers"]),
    ({"noise_relative_norm": -0.5}, ValueError, ["noise_relative_norm", "-0.5"]),
    ({"further_probe_sets": -2}, ValueError, ["further_probe_sets", "-2"]),
    ({"serve": 9464}, TypeError, ["serve = 9464"]),
    ({"serve": {"htpp": "x"}}, TypeError, ["serve['htpp']", "serve['http']"]),
    ({"on_failure": "ignore"}, ValueError, ["ignore", "inert"]),
    ({"on_alert": 3}, TypeError, ["on_alert = 3", "callable"]),
    ({"layers": {"include": "head"}}, TypeError, ["layers['include'] = 'head'", "list"]),
    ({"max_snapshot_time": 1e12}, ValueError, ["max_snapshot_time"]),
    ({"every": 0}, ValueError, ["schedule.every", "0"]),
    ({"max_overhead": 3}, ValueError, ["max_overhead", "3"]),
    ({"mode": "fork"}, ValueError, ["mode = 'fork'"]),
    ({"probe": PROBE[0][0]}, TypeError, ["probe", "Tensor", "list"]),
    ({"probe": [("text", 1)]}, TypeError, ["probe[0][0]", "str"]),
    ({"probe": [PROBE[0], ()]}, ValueError, ["probe[1] has no tensors"]),
    ({"probe": [tuple(part[:0] for part in PROBE[0])]}, ValueError, ["probe[0] has no sequences"]),
    ({"probe": [(PROBE[0][0].to_sparse(), PROBE[0][1])]}, TypeError, ["probe[0][0]", "sparse", "dense"]),
    ({"run_dir": "run\udcff"}, ValueError, ["run_dir = 'run\\udcff'", "UTF-8"]),
    ({"run_dir": "run\0"}, ValueError, ["run_dir = 'run\\x00'", "null"]),
    ({"calibration": PROBE[0][0]}, TypeError, ["calibration", "Tensor", "list"]),
    ({"optimizer": "adamw"}, TypeError, ["optimizer is of type str"]),
    ({"calibration": [{"x": PROBE[0][0]}]}, TypeError, ["calibration[0]", "a dict of x"]),
    ({"losses": "nothing"}, RuntimeError, ["losses = 'nothing'"]),
    ({"losses": "tiny:nothing"}, RuntimeError, ["losses = 'tiny:nothing'"]),
    ({"build": "no_such_module:build"}, RuntimeError, ["build = 'no_such_module:build'"]),
    ({"build": lambda: 3}, RuntimeError, ["build returned", "int"]),
    ({"build": lambda: tiny.make_model().to("meta")}, RuntimeError, ["build returned", "'embedding.weight'", "meta device"]),
])
def test_mistakes_are_named(options, error, words):
    with pytest.raises(error) as caught:
        watch(tiny.make_model(), **options)
    for word in words:
        assert word in str(caught.value)


def test_options_reach_the_monitor():
    import datetime

    model = tiny.make_model()
    monitor = watch(model, quantizers=["rtn3", {"method": "gptq", "bits": 4, "group_size": 16}], max_snapshot_time=datetime.timedelta(
        minutes=1), duty_cycle=None, overrides={"down.weight": "rtn3"}, layers={"exclude": ["up.*"]}, curvature={"enabled": False},
        averaging={"window": 2}, schedule={"decay_density": 1})
    tiny.train(model, 10, monitor)
    assert monitor.finish()
    newest = monitor.latest()
    assert [row["group_size"] for row in newest["quantization"]] == [128, 16]
    assert [layer["name"] for layer in newest["quantization"][0]["layers"]] == ["down.weight"]
    assert newest.get("curvature", {}).get("top_eigenvalue") is None
    assert monitor.stop()


def fails(model, batch):
    raise ValueError("no such token")


def exits(model, batch):
    sys.exit("enough")


def interrupts(model, batch):
    raise KeyboardInterrupt


def draws_python(model, batch):
    random.random()
    return tiny.token_losses(model, batch)


def draws_numpy(model, batch):
    numpy.random.rand()
    return tiny.token_losses(model, batch)


def draws_torch(model, batch):
    return tiny.token_losses(model, batch) + 0 * torch.rand(())


def trains(model, batch):
    model.train()
    return tiny.token_losses(model, batch)


@pytest.mark.parametrize("losses, words", [
    (fails, ["ValueError: no such token", "test_watch.py", "in fails"]),
    (exits, ["SystemExit: enough"]),
    (draws_python, ["Python's"]),
    (draws_numpy, ["NumPy's"]),
    (draws_torch, ["default generator"]),
    (trains, ["training mode", "TinyModel"]),
    (lambda model, batch: 3.0, ["losses returned an object of type float"]),
    (lambda model, batch: (1, 2, 3), ["a tuple of 3"]),
    (lambda model, batch: (1000 * tiny.token_losses(model, batch)).long(), ["values of type Long", "floating-point"]),
    (lambda model, batch: tiny.token_losses(model, batch)[1:], ["[15, 8]", "16 sequences"]),
    (lambda model, batch: tiny.token_losses(model, batch) * float("nan"), ["128 of 128 values are NaN"]),
    (lambda model, batch: {"value": 1}, ["'value'"]),
])
def test_unsuitable_losses_leave_training_alone(losses, words):
    model = tiny.make_model()
    monitor = watch(model, losses=losses, on_failure="inert")
    tiny.train(model, 10, monitor)
    for word in words:
        assert word in monitor.failure
    assert monitor.status()["health"] == "inert"
    assert not monitor.finish()
    assert monitor.latest() is None
    assert monitor.stop()


def test_ctrl_c_while_the_monitor_is_made_is_the_trainers():
    with pytest.raises(KeyboardInterrupt):
        watch(tiny.make_model(), losses=interrupts, on_failure="inert")
        sys.stdout.flush()


@pytest.mark.parametrize("raise_it", [fails, exits, interrupts])
def test_losses_that_fail_later_are_a_status(raise_it):
    broken = threading.Event()

    def losses(model, batch):
        return raise_it(model, batch) if broken.is_set() else tiny.token_losses(model, batch)

    model = tiny.make_model()
    monitor = watch(model, losses=losses)
    broken.set()
    tiny.train(model, 10, monitor)
    monitor.finish()
    assert "losses threw" in monitor.latest()["probe_status_detail"]
    assert monitor.latest()["probe_status"] != "ok"
    assert monitor.stop()


def test_sharded_and_empty_parameters_are_refused():
    meta = tiny.make_model().to("meta")
    empty = tiny.make_model()
    empty.up.weight = torch.nn.Parameter(torch.empty(0))
    zero3 = tiny.make_model()
    zero3.head.weight.ds_id = 3
    swapped = tiny.make_model()
    swapped.head.weight.ds_id, swapped.head.weight.ds_tensor = 3, torch.zeros(8, dtype=torch.bfloat16)
    swapped.head.weight._z3_optimizer = types.SimpleNamespace(  # the optimizer's copy is on a disk
        grad_position={3: [0, 0, 8]}, get_param_id=lambda parameter: parameter.ds_id, fp32_partitioned_groups_flat=[torch.empty(0)])
    for model, word in ((meta, "meta device"), (empty, "size 0"), (zero3, "ZeRO-3"), (swapped, "'head.weight' .* optimizer's copy .* not in memory")):
        monitor = watch(model, on_failure="inert")
        monitor.step(1, 1e-3)
        assert re.search(word, monitor.failure) and "ptqwatch trajectory --follow" in monitor.failure


def test_weights_that_megatron_gathers_later_are_refused():
    late = types.SimpleNamespace(ddp_config=types.SimpleNamespace(overlap_param_gather=True))
    model = tiny.make_model()
    optimizer = torch.optim.AdamW(model.parameters())
    optimizer.ddp_config = late.ddp_config
    assert "overlap_param_gather" in watch(model, optimizer=optimizer, on_failure="inert").failure
    model.ddp_config = late.ddp_config
    assert "overlap_param_gather" in watch(model, on_failure="inert").failure
    late.ddp_config.overlap_param_gather = False
    assert watch(model, on_failure="error").stop()


class DistributedDataParallel:
    """Has of Megatron-Core 0.16's class of this name what makes hooks."""

    def _make_forward_pre_hook(self):
        return lambda module, *unused: None


def test_a_module_without_its_wrapper_says_that_weights_are_gathered_later():
    model = tiny.make_model()
    hook = model.up.register_forward_pre_hook(DistributedDataParallel()._make_forward_pre_hook())
    assert "overlap_param_gather" in watch(model, on_failure="inert").failure
    hook.remove()
    assert watch(model, on_failure="error").stop()


class ChainedOptimizer:
    """Has of Megatron-Core 0.16's class of this name what watch() sees."""

    def __init__(self, *optimizers, **config):
        self.config = types.SimpleNamespace(**config)
        self.chained_optimizers = optimizers
        self.param_groups = [group for each in optimizers for group in each.param_groups]

    @property
    def optimizer(self):
        assert len(self.chained_optimizers) == 1
        return self.chained_optimizers[0]


def test_a_chain_of_optimizers_says_that_weights_are_gathered_later():
    model = tiny.make_model()
    chain = ChainedOptimizer(torch.optim.AdamW(model.parameters()), overlap_param_gather=True)
    assert "overlap_param_gather" in watch(model, optimizer=chain, on_failure="inert").failure


def test_a_chain_of_several_optimizers_is_not_looked_through(caplog):
    model = tiny.make_model()
    parameters = list(model.parameters())
    chain = ChainedOptimizer(torch.optim.AdamW(parameters[:2]), torch.optim.AdamW(parameters[2:]), overlap_param_gather=False)
    assert watch(model, optimizer=chain, on_failure="error").stop()
    assert "no formula for ChainedOptimizer" in caplog.text


def test_parameters_without_a_shape_are_refused():
    lazy = tiny.make_model()
    lazy.head = torch.nn.LazyLinear(tiny.VOCABULARY)
    assert "'head.weight' has no shape before the model has run" in watch(lazy, on_failure="inert").failure


def test_an_optimizer_that_is_not_known_is_logged(caplog):
    model = tiny.make_model()
    watch(model, optimizer=torch.optim.RMSprop(model.parameters())).stop()
    assert "no formula for RMSprop" in caplog.text


def test_a_model_that_cannot_be_copied_needs_build():
    model = tiny.make_model()
    model.newest = model.up(torch.zeros(1, 32))
    assert "pass build to watch()" in watch(model, on_failure="inert").failure
    assert watch(model, build=tiny.make_model).stop()


def test_a_sharded_dtensor_is_refused(start_script):
    start_script("""
        import torch, tiny, ptqwatch
        from torch.distributed.fsdp import fully_shard
        from torch.testing._internal.distributed.fake_pg import FakeStore
        torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
        model = fully_shard(tiny.make_model(), mesh=torch.distributed.init_device_mesh("cpu", (2,)))
        monitor = ptqwatch.watch(model, losses=tiny.token_losses, probe=tiny.probe_batches(), mode="thread", ranks_from_environment=False)
        assert "sharded over ranks" in monitor.failure and "mode='process'" in monitor.failure, monitor.failure
        for wrong, said in (({}, "run_dir is empty"), ({"run_dir": "run"}, "build = None")):
            monitor = ptqwatch.watch(model, losses="tiny:token_losses", probe=tiny.probe_batches(), **wrong)
            assert said in monitor.failure, monitor.failure
        partial = torch.distributed.tensor.DTensor.from_local(torch.ones(4, 4), model.up.weight.device_mesh, [torch.distributed.tensor.Partial()])
        model.register_parameter("partial", torch.nn.Parameter(partial))
        monitor = ptqwatch.watch(model, losses="tiny:token_losses", probe=tiny.probe_batches(), run_dir="run", build="tiny:make_model")
        assert "'partial'" in monitor.failure and "its placement is" in monitor.failure and "trajectory --follow" in monitor.failure, monitor.failure
    """).end()


@pytest.mark.parametrize("mode", ["thread", "process"])
def test_fsdp2_over_one_rank_reports_as_a_plain_model(start_script, mode):
    """The root is unsharded at each snapshot, in bfloat16: a validation pass comes before it."""
    assert start_script(f"""
        import torch, tiny, ptqwatch
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
        from torch.distributed.tensor import distribute_module
        torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
        mesh = torch.distributed.init_device_mesh("cpu", (1,))

        def last_report(place):
            torch.manual_seed(0)
            model = tiny.make_model()
            weights = [parameter.clone() for parameter in model.parameters()]
            model = place(model)
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
            with ptqwatch.watch(model, losses="tiny:token_losses", probe=tiny.probe_batches(), build="tiny:make_model", every=3, mode="{mode}",
                                optimizer=optimizer, on_failure="error", max_overhead=1.0, adapt_plan=False, quantizers="rtn3,gptq4",
                                ranks_from_environment=False) as monitor:
                for step in range(1, 4):
                    for parameter, weight in zip(optimizer.param_groups[0]["params"], weights):  # the same updates, whatever the arithmetic
                        whole = weight.sign() * 1e-3 * step
                        local = getattr(parameter, "_local_tensor", parameter)
                        parameter.grad = whole if local is parameter else type(parameter).from_local(whole, parameter.device_mesh, parameter.placements)
                    optimizer.step()
                    optimizer.zero_grad()
                    if hasattr(model, "reshard"):
                        with torch.no_grad():
                            model(tiny.draw(2, 1)[0])
                        assert type(next(model.parameters())).__name__ == "Parameter"
                    monitor.step(step, 1e-2)
            report = monitor.latest()
            return {{key: report[key] for key in ("snapshot_digest", "probe_loss_nats", "quantization", "curvature")}}

        plain = last_report(lambda model: model)
        assert plain["curvature"]["edge_of_stability_ratio"], plain["curvature"]
        for place in (lambda model: fully_shard(model, mesh=mesh, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16)),
                      lambda model: distribute_module(model, mesh)):
            report = last_report(place)
            for key, value in plain.items():
                assert report[key] == value, (key, report[key], value)
        model = distribute_module(tiny.make_model(), mesh)
        for build, owner in ((None, "the copy of the model"), (lambda: distribute_module(tiny.make_model(), mesh), "the model that build returned")):
            monitor = ptqwatch.watch(model, losses=tiny.token_losses, probe=tiny.probe_batches(), mode="thread", build=build, ranks_from_environment=False)
            assert f"{{owner}} has a DTensor" in monitor.failure, monitor.failure
        print("equal")
    """).end() == "equal\n"


ENDLESS = """
    import threading, time, torch, tiny, ptqwatch
    hang, entered = threading.Event(), threading.Event()
    def losses(model, batch):
        while hang.is_set():
            entered.set()
            {busy}
        return tiny.token_losses(model, batch)
    model = tiny.make_model()
    monitor = ptqwatch.watch(model, losses=losses, probe=tiny.probe_batches(), mode="thread", every=5, on_failure="error",
                             max_overhead=1.0)
    hang.set()
    tiny.train(model, 5, monitor)
    entered.wait()
    print("trained", flush=True)
"""


@pytest.mark.parametrize("busy", ["pass", "torch.ones(64, 64) @ torch.ones(64, 64)", "time.sleep(3600)"])
def test_the_interpreter_ends_while_losses_run(start_script, busy):
    assert start_script(ENDLESS.format(busy=busy)).end() == "trained\n"


def test_the_interpreter_ends_inside_an_operator(start_script):
    # The operator returns after the monitor was given up, while modules are being destroyed.
    start_script("""
        import sys, threading, time, torch, types, tiny, ptqwatch
        class Slow:
            def __del__(self, sleep=time.sleep):
                sleep(3)
        torch.set_num_threads(1)
        matrix, entered = torch.rand(256, 256), threading.Event()
        start = time.monotonic()
        torch.linalg.multi_dot([matrix] * 100)
        count = int(100 * 1.5 / (time.monotonic() - start))
        long = False
        def losses(model, batch):
            if long:
                entered.set()
                torch.linalg.multi_dot([matrix] * count)
            return tiny.token_losses(model, batch)
        model = tiny.make_model()
        monitor = ptqwatch.watch(model, losses=losses, probe=tiny.probe_batches(), mode="thread", every=5, on_failure="error",
                                 max_overhead=1.0)
        long = True
        tiny.train(model, 5, monitor)
        entered.wait()
        sys.modules["slow"] = types.ModuleType("slow")
        sys.modules["slow"].slow = Slow()
        assert not monitor.stop(0.3)
    """).end()


def test_the_interpreter_ends_with_a_live_monitor(start_script):
    start_script("""
        import tiny, ptqwatch
        model = tiny.make_model()
        monitor = ptqwatch.watch(model, losses=tiny.token_losses, probe=tiny.probe_batches(), mode="thread", every=5)
        tiny.train(model, 20, monitor)
    """).end()


def test_a_script_that_names_itself_is_not_imported_again(start_script):
    printed = start_script("""
        import tiny, ptqwatch
        print("trains")
        def losses(model, batch):
            return tiny.token_losses(model, batch)
        ptqwatch.watch(tiny.make_model(), build="tiny:make_model", losses="script0:losses", probe=tiny.probe_batches(), mode="thread",
                       on_failure="error").stop()
    """).end()
    assert printed == "trains\n"


def test_ctrl_c_at_the_end_of_the_interpreter_leaves_threads_safe(monkeypatch):
    ended = []

    class Interrupted:
        def stop(self):
            raise KeyboardInterrupt

    monkeypatch.setattr(_monitor, "_monitors", [Interrupted()])
    monkeypatch.setattr(_monitor._native, "end_python", lambda: ended.append(True))
    with pytest.raises(KeyboardInterrupt):
        _monitor._end()
    assert ended


def test_two_ranks_of_ddp_end_in_the_same_bits(start_script, tmp_path):
    script = """
        import sys, torch, tiny, ptqwatch
        rank, watched = int(sys.argv[1]), sys.argv[2] == "on"
        store = torch.distributed.FileStore(sys.argv[3], 2)
        torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=2)
        torch.manual_seed(0)
        model = tiny.make_model()
        wrapped = torch.nn.parallel.DistributedDataParallel(model)
        torch.manual_seed(rank)
        monitor = None
        if watched and rank == 0:
            monitor = ptqwatch.watch(wrapped, losses=tiny.token_losses, probe=tiny.probe_batches(), mode="thread", every=5,
                                     on_failure="error", max_overhead=1.0, run_dir=sys.argv[4])
        tiny.train(model, 20, monitor, wrapped)
        if monitor:
            assert monitor.finish() and monitor.latest()["step"] == 20
        torch.save([*model.state_dict().values(), torch.get_rng_state()], sys.argv[5])
        torch.distributed.destroy_process_group()
    """
    ends = []
    for watched in ("off", "on"):
        outputs = [tmp_path / f"{watched}-{rank}.pt" for rank in (0, 1)]
        ranks = [start_script(script, rank, watched, tmp_path / f"store-{watched}", tmp_path / "run", outputs[rank]) for rank in (0, 1)]
        for rank in ranks:
            rank.end()
        ends.append([torch.load(output) for output in outputs])
    for off, on in zip(*ends):
        assert same_bits(off, on)


def test_a_step_takes_rates_as_schedulers_have_them(caplog):
    monitor = watch(tiny.make_model())
    monitor.step(1, torch.tensor(1e-3), numpy.int64(5), torch.tensor([0.25], requires_grad=True))
    status = monitor.status()
    assert (status["learning_rate"], status["tokens"], status["training_loss_nats"]) == (pytest.approx(1e-3), 5, 0.25)
    assert monitor.failure == "" and not caplog.records
    for _ in range(2):
        monitor.step(step=2, lr=[1e-3, torch.tensor(0.25), 1e-4], loss=2)
        assert (monitor.status()["learning_rate"], monitor.status()["training_loss_nats"]) == (0.25, 2)
    assert [record.getMessage() for record in caplog.records] == ["step(): lr has 3 rates, 0.0001 to 0.25: the largest is taken"]
    monitor.step(3, (1e-3,))
    assert monitor.status()["learning_rate"] == 1e-3
    monitor.step(4, None)
    assert monitor.status()["step"] == 4 and monitor.status().get("learning_rate") is None
    assert monitor.failure == ""
    assert monitor.stop()


class Unreadable:
    def __repr__(self):
        raise ValueError("no text")


@pytest.mark.parametrize("mode", ["thread", "process"])
def test_a_wrong_argument_ends_no_training(tmp_path, caplog, mode):
    monitor = watch(tiny.make_model(), run_dir=tmp_path, mode=mode)
    assert mode == "thread" or monitor.describe()  # the worker is ready
    for arguments, names, step, words in [
        (("3", 1e-3), {}, None, "step = '3': must be a 64-bit integer"),
        ((2.5, 1e-3), {}, None, "step = 2.5: must be"),
        ((1 << 70, 1e-3), {}, None, "must be a 64-bit integer"),
        ((Unreadable(), 1e-3), {}, None, "no text"),
        ((3,), {}, None, "needs lr"),
        ((3, 1e-3, 4, 0.5, 6), {}, None, "was given 5"),
        ((3, 1e-3), {"lr": 1e-3}, None, "two values for lr"),
        ((3, 1e-3), {"token": 4}, None, "no argument 'token'"),
        ((3, "low"), {}, 3, "lr = 'low': must be a number"),
        ((4, []), {}, 4, "lr is an empty list"),
        ((5, torch.zeros(2)), {}, 5, "lr is a tensor of 2 elements"),
        ((6, 1e-3, 0.5), {}, 6, "tokens = 0.5"),
        ((7, 1e-3), {"loss": "nan"}, 7, "loss = 'nan'"),
        ((8, 1e-3), {"loss": torch.zeros(3)}, 8, "loss is a tensor of 3 elements"),
        ((9, torch.empty(1, device="meta")), {}, 9, "meta"),
    ]:
        monitor.step(*arguments, **names)
        assert monitor.failure
        if step is not None and mode == "thread":
            assert monitor.status()["step"] == step
    assert monitor.failure.startswith("arguments of 15 calls were wrong, first: step(): step = '3': must be a 64-bit integer")
    mistakes = [record for record in caplog.records if "step()" in record.getMessage()]
    assert [record.levelname for record in mistakes] == ["WARNING"]

    class Interrupts:
        def __index__(self):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        monitor.step(Interrupts(), 1e-3)
    monitor.step(10, 1e-3)
    assert monitor.finish(timeout=10**400) in (True, False)
    assert monitor.finish(timeout="a minute") in (True, False)
    assert monitor.stop(timeout=None) and "stop(): timeout = None" in caplog.text


def test_no_snapshot_is_taken_inside_a_capture(monkeypatch):
    with watch(tiny.make_model(), every=1) as monitor:
        with monkeypatch.context() as pretended:
            pretended.setattr(torch.cuda, "is_initialized", lambda: True)
            pretended.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
            monitor.step(1, 1e-3)
        monitor.step(2, 1e-3)
    status = monitor.status()["snapshots"]
    assert (status["failed"], status["taken"]) == (1, 1)


def test_the_lock_is_free_while_weights_are_copied():
    model = tiny.make_model()
    model.table = torch.nn.Parameter(torch.zeros(1 << 23))
    monitor = watch(model, curvature={"enabled": False}, averaging={"enabled": False}, losses=lambda net, batch: tiny.token_losses(
        net, batch) + 0 * net.table[0], every=1)
    counted, stop = 0, threading.Event()

    def count():
        nonlocal counted
        while not stop.is_set():
            counted += 1
            time.sleep(0)

    thread = threading.Thread(target=count)
    thread.start()
    old = sys.getswitchinterval()
    sys.setswitchinterval(100)  # the counter runs only while another thread gives the lock up
    try:
        for step in range(1, 21):  # a copy takes milliseconds, in which the counter's thread may not get a core
            before = counted
            monitor.step(step, 1e-3)
            during = counted - before
            if during:
                break
            assert monitor.finish(60)  # the slot is free again
    finally:
        sys.setswitchinterval(old)
        stop.set()
        thread.join()
    assert monitor.status()["snapshots"]["taken"] >= step
    assert during > 0
    assert monitor.stop()


class Square(torch.autograd.Function):
    """x^2, with a derivative in Python."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        x, = ctx.saved_tensors
        return 2 * x * gradient


class SquareOnce(Square):
    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient):
        x, = ctx.saved_tensors
        return 2 * x * gradient


class SquareRaises(Square):
    @staticmethod
    def backward(ctx, gradient):
        if torch.is_grad_enabled():
            raise ValueError("not twice")
        return Square.backward(ctx, gradient)


@pytest.mark.parametrize("function, mode", [(Square, "retained_graph"), (SquareOnce, "finite_difference"), (SquareRaises, "finite_difference")])
def test_curvature_goes_through_functions_in_python(function, mode):
    class Model(tiny.TinyModel):
        def forward(self, ids):
            h = self.embedding(ids)
            return self.head(h + self.down(function.apply(self.up(self.norm(h)))))

    monitor = watch(Model())
    monitor.step(1, 1e-3)
    assert monitor.finish()
    curvature = monitor.latest()["curvature"]
    assert (curvature["status"], curvature["mode"]) == ("ok", mode)
    assert bool(curvature.get("mode_detail")) == (mode == "finite_difference")
    assert function is not SquareRaises or "not twice" in curvature["mode_detail"]
    assert monitor.stop()


def test_a_derivative_in_python_that_raises_is_named_and_forgotten():
    class Never(Square):
        @staticmethod
        def backward(ctx, gradient):
            raise ValueError("never")

    class Model(tiny.TinyModel):
        def forward(self, ids):
            h = self.embedding(ids)
            return self.head(h + self.down(Never.apply(self.up(self.norm(h)))))

    monitor = watch(Model())  # a SystemError if the interpreter still had the exception
    monitor.step(1, 1e-3)
    assert monitor.finish()
    assert monitor.latest()["curvature"]["status"] == "disabled"
    assert "never" in monitor.latest()["curvature"]["status_detail"]
    assert monitor.latest()["quantization"][0]["status"] == "ok"
    assert monitor.stop()
    with pytest.raises(RuntimeError, match="never"):
        ptqwatch.curvature(Model(), tiny.token_losses, PROBE)


def test_cooldowns_train_the_replica():
    def train_step(replica, step):
        assert replica.training
        optimizer = torch.optim.SGD(replica.parameters(), lr=step.learning_rate)
        tiny.token_losses(replica, tiny.draw(8, step.batch % (1 << 30))).mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    model = tiny.make_model()
    monitor = watch(model, train_step=train_step, cooldown={"decay_steps": 8, "every_snapshots": 1})
    tiny.train(model, 10, monitor)
    assert "cooldown" in monitor.describe()
    assert monitor.finish()
    assert monitor.stop()


def test_a_server_runs_beside_the_run(bin_dir, tmp_path):
    if not (bin_dir / "ptqwatch").exists():
        pytest.skip("the program ptqwatch was not built")
    serve = {"program": bin_dir / "ptqwatch", "http": "127.0.0.1:0", "grpc": "", "linger": 0}
    monitor = watch(tiny.make_model(), run_dir=tmp_path / "run", serve=serve)
    monitor.step(1, 1e-3)
    eventually(lambda: monitor.served["state"] == "serving")
    assert "ptqwatch_step" in page_of(monitor.served["metrics"])
    assert monitor.stop()


def test_without_a_program_training_goes_on(tmp_path):
    monitor = watch(tiny.make_model(), run_dir=tmp_path / "run", serve={"program": tmp_path / "none"}, on_failure="inert")
    monitor.step(1, 1e-3)
    assert monitor.failure == ""
    assert monitor.served["state"] == "failed"
    assert str(tmp_path / "none") in monitor.served["reason"]
    assert monitor.stop()


def test_a_forked_child_leaves_the_monitor_alone(start_script):
    printed = start_script("""
        import os, sys, time, tiny, ptqwatch
        model = tiny.make_model()
        monitor = ptqwatch.watch(model, losses=tiny.token_losses, probe=tiny.probe_batches(), mode="thread", every=5,
                                 on_failure="error", max_overhead=1.0)
        tiny.train(model, 5, monitor)
        # The child must not fork while the monitor's first measurement registers destructors: glibc's exit() would wait for ever.
        while monitor.latest() is None:
            time.sleep(0.01)
        child = os.fork()
        monitor.step(10, 1e-3)
        if child == 0:
            assert monitor.latest() is None
            sys.exit(3)  # with all that runs at the interpreter's end
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
        assert monitor.finish() and monitor.latest()["step"] == 10
        print("measured")
    """).end()
    assert printed == "measured\n"


def test_a_disabled_monitor_does_nothing(monkeypatch):
    monkeypatch.setenv("PTQWATCH_DISABLE", "1")
    monitor = watch(tiny.make_model(), losses="no_such_module:losses")
    monitor.step(1, 1e-3)
    assert "PTQWATCH_DISABLE" in monitor.describe()
    assert monitor.latest() is None
