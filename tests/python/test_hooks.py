"""Callbacks for the Trainers of Hugging Face and Lightning."""

import importlib
import sys
import types

import pytest
import tiny
import torch

import ptqwatch

OPTIONS = {"mode": "thread", "on_failure": "error", "every": 5, "quantizers": "rtn3", "max_overhead": 1.0, "adapt_plan": False,
           "curvature": {"enabled": False}, "averaging": {"enabled": False}}


def llama():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=16, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2,
        max_position_embeddings=16))


def test_causal_lm_leaves_out_what_is_masked():
    model = llama().eval()
    ids = torch.randint(16, (2, 8))
    mask = torch.ones_like(ids)
    mask[1, 5:] = 0
    from ptqwatch.losses import causal_lm

    losses, weights = causal_lm(model, {"input_ids": ids, "attention_mask": mask})
    logits = model(input_ids=ids, attention_mask=mask).logits
    assert losses.shape == (2, 7)
    assert weights.tolist() == [[1.0] * 7, [1.0] * 4 + [0.0] * 3]
    expected = torch.nn.functional.cross_entropy(logits[0, :-1], ids[0, 1:], reduction="none")
    assert torch.equal(losses[0], expected)
    labels = ids.masked_fill(mask == 0, -100)
    mean = (losses * weights).sum() / weights.sum()
    assert torch.allclose(mean, model(input_ids=ids, attention_mask=mask, labels=labels).loss)
    assert torch.allclose(causal_lm(tiny.make_model().eval(), ids)[1], torch.ones(2, 7))


@pytest.fixture
def trainer_class():
    pytest.importorskip("accelerate")
    transformers = pytest.importorskip("transformers")
    return transformers.Trainer


def run_trainer(trainer_class, folder, callbacks, **changed):
    from transformers import TrainingArguments

    data = [{"input_ids": ids, "labels": ids} for ids in tiny.draw(80, 0)[0]]
    model = llama()
    arguments = TrainingArguments(**{
        "output_dir": str(folder), "max_steps": 20, "per_device_train_batch_size": 2, "gradient_accumulation_steps": 2,
        "learning_rate": 1e-3, "lr_scheduler_type": "linear", "warmup_steps": 2, "logging_steps": 4, "save_strategy": "no",
        "use_cpu": True, "report_to": [], "disable_tqdm": True, "include_num_input_tokens_seen": "all", "seed": 3, **changed})
    trainer = trainer_class(model=model, args=arguments, train_dataset=data, eval_dataset=data[:4], callbacks=callbacks)
    trainer.train()
    return model, trainer


def test_hugging_face_trainer(trainer_class, tmp_path):
    from ptqwatch.hf import PtqwatchCallback

    callback = PtqwatchCallback(probe=[{"input_ids": tiny.draw(16, 9)[0]}], **OPTIONS)
    watched, trainer = run_trainer(trainer_class, tmp_path / "on", [callback])
    plain, other = run_trainer(trainer_class, tmp_path / "off", [])
    assert all(torch.equal(a, b) for a, b in zip(watched.state_dict().values(), plain.state_dict().values()))

    lines = [entry for entry in trainer.state.log_history if "ptqwatch/error_ratio_rtn3" in entry]
    assert lines[-1]["ptqwatch/step"] == 20
    assert lines[-1]["ptqwatch/verdict"] == "warming_up"
    # The rate and the loss are those that the Trainer logs for its steps.
    rates = {entry["step"]: entry["learning_rate"] for entry in trainer.state.log_history if "learning_rate" in entry}
    last = callback.monitor.latest()
    assert last["learning_rate"] == pytest.approx(rates[20], rel=1e-12)
    assert last["tokens"] == trainer.state.num_input_tokens_seen
    assert (tmp_path / "on/ptqwatch/journal.jsonl").exists()


def test_trainer_log_reaches_other_callbacks(trainer_class, tmp_path):
    import transformers

    from ptqwatch.hf import PtqwatchCallback

    seen = []

    class Log(transformers.TrainerCallback):
        def on_log(self, args, state, control, logs=None, **kwargs):
            seen.append(dict(logs))

    callback = PtqwatchCallback(probe=[{"input_ids": tiny.draw(16, 9)[0]}], **OPTIONS)
    run_trainer(trainer_class, tmp_path, [Log(), callback])
    assert any("ptqwatch/error_ratio_rtn3" in logs for logs in seen)


class FakeMonitor:
    """Has a new report at every step."""

    def __init__(self, model, **arguments):
        self.model, self.arguments = model, arguments
        self.steps = []
        self.stop = lambda: True

    def step(self, step, lr, tokens=None, loss=None):
        self.steps.append((step, loss))

    def finish(self, timeout):
        return True

    def latest(self):
        return {"step": len(self.steps), "verdict": {"state": "healthy"}, "quantization": []}


def test_the_log_of_the_trainer_stays_whole(trainer_class, tmp_path, monkeypatch):
    import transformers

    from ptqwatch import hf

    class Callback(hf.PtqwatchCallback):
        def on_train_begin(self, *arguments, **names):
            super().on_train_begin(*arguments, **names)

    class Log(transformers.TrainerCallback):
        seen = 0

        def on_log(self, args, state, control, logs=None, **kwargs):
            self.seen += "ptqwatch/step" in logs

    monkeypatch.setattr(hf, "watch", FakeMonitor)
    callback, log = Callback(probe=[]), Log()
    _, trainer = run_trainer(trainer_class, tmp_path, [log, callback], logging_steps=1, eval_strategy="steps", eval_steps=2)
    losses = {entry["step"]: entry["loss"] for entry in trainer.state.log_history if "loss" in entry}
    assert list(losses) == list(range(1, 21))
    assert log.seen >= 20
    # A step gets the loss that was logged before it, whether the model was evaluated meanwhile or not.
    assert callback.monitor.steps == [(1, None), *((step + 1, losses[step]) for step in range(1, 20))]


def test_the_copy_of_a_model_in_mixed_precision_computes_in_float32(trainer_class, tmp_path):
    from ptqwatch.hf import PtqwatchCallback
    from ptqwatch.losses import causal_lm

    ids = tiny.draw(16, 9)[0]
    callback = PtqwatchCallback(probe=[{"input_ids": ids}], **OPTIONS)
    model, _ = run_trainer(trainer_class, tmp_path, [callback], bf16=True)
    assert model._original_forward  # accelerate has replaced it
    plain = llama()
    plain.load_state_dict(model.state_dict())
    with torch.no_grad():
        loss = causal_lm(plain.eval(), {"input_ids": ids})[0].mean()
    assert callback.monitor.latest()["probe_loss_nats"] == pytest.approx(loss.item(), rel=1e-6)


def test_the_first_process_measures_everything_alone(tmp_path, monkeypatch):
    pytest.importorskip("transformers")
    from ptqwatch.hf import PtqwatchCallback

    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "4")
    callback = PtqwatchCallback(probe=[{"input_ids": tiny.draw(16, 9)[0]}], run_dir=tmp_path, **{**OPTIONS, "quantizers": "rtn3,rtn4"})
    callback.on_train_begin(None, types.SimpleNamespace(is_world_process_zero=True), None, model=llama())
    callback.monitor.step(1, 1e-3)
    assert callback.monitor.finish()
    assert [row["status"] for row in callback.monitor.latest()["quantization"]] == ["ok", "ok"]
    assert callback.monitor.stop() and (tmp_path / "journal.jsonl").exists()


class Stub:
    """The parts of Lightning's interface that the callback uses."""

    class Logger:
        def __init__(self):
            self.lines = []

        def log_metrics(self, values, step):
            self.lines.append((step, values))

    def __init__(self, folder, model, optimizer):
        self.strategy = types.SimpleNamespace(model=model)
        self.is_global_zero = True
        self.global_step = 0
        self.accumulate_grad_batches = 2
        self.default_root_dir = str(folder)
        self.optimizers = [optimizer]
        self.loggers = [self.Logger()]


@pytest.fixture
def lightning(monkeypatch):
    """ptqwatch.lightning, with a stub of the base class."""
    package = types.ModuleType("lightning.pytorch.callbacks")
    package.Callback = type("Callback", (), {})
    for name in ("lightning", "lightning.pytorch"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "lightning.pytorch.callbacks", package)
    monkeypatch.delitem(sys.modules, "ptqwatch.lightning", raising=False)
    monkeypatch.setenv("WORLD_SIZE", "2")  # as Lightning's launcher does
    return importlib.import_module("ptqwatch.lightning")


@pytest.mark.parametrize("sharded", [False, True])
def test_lightning_watches_a_sharded_module_on_all_ranks(lightning, tmp_path, monkeypatch, sharded):
    """ModelParallelStrategy has the module itself as its model."""
    monkeypatch.setattr(lightning, "watch", FakeMonitor)
    monkeypatch.setattr(lightning, "is_sharded", lambda model: sharded)
    model = tiny.make_model()
    trainer = Stub(tmp_path, model, torch.optim.SGD(model.parameters(), lr=1.0))
    trainer.is_global_zero = False
    callback = lightning.PtqwatchCallback(losses=tiny.token_losses, probe=[])
    callback.on_train_start(trainer, model)
    assert (callback.monitor is not None) == sharded


def test_lightning_with_a_stub_of_its_trainer(lightning, tmp_path):
    model = tiny.make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    trainer = Stub(tmp_path, model, optimizer)
    callback = lightning.PtqwatchCallback(losses=tiny.token_losses, probe=tiny.probe_batches(), **OPTIONS)
    callback.on_train_start(trainer, model)
    for batch in range(20):
        loss = tiny.token_losses(model, tiny.draw(4, batch)).mean()
        loss.backward()
        if batch % 2 == 1:  # accumulates two batches
            callback.on_before_optimizer_step(trainer, model, optimizer)
            optimizer.step()
            optimizer.zero_grad()
            trainer.global_step += 1
            optimizer.param_groups[0]["lr"] *= 0.5
        callback.on_train_batch_end(trainer, model, {"loss": loss.detach() / 2}, None, batch)
    status = callback.monitor.status()
    assert status["steps_total"] == 10
    assert status["learning_rate"] == 0.5**9
    assert status["training_loss_nats"] == pytest.approx(float(loss.detach()))
    callback.on_train_end(trainer, model)
    step, values = trainer.loggers[0].lines[-1]
    assert step == values["ptqwatch/step"] == 10
    assert values["ptqwatch/error_ratio_rtn3"] == callback.monitor.latest()["quantization"][0]["error_ratio"]
    assert values["ptqwatch/alarm"] == 0
    assert ptqwatch.read_run(tmp_path / "ptqwatch") if hasattr(ptqwatch, "read_run") else True
