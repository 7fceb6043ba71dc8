"""The model of examples/char_gpt in PyTorch: its report equals that of the C++ program to the bit."""

import pathlib
import random
import subprocess
import sys

import numpy
import pytest
import torch

import ptqwatch

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "benchmarks"))
import torch_gpt  # noqa: E402

LENGTH, BATCH, PROBE, CALIBRATION, STEPS, HEADS, RATE = 32, 8, 32, 16, 40, 2, 1e-2
# These fields tell when and where a report was measured.
APART = {"run_id", "snapshot_time_unix_seconds", "cost", "fingerprint"}


class Mt64:
    """std::mt19937_64."""

    def __init__(self, seed):
        self.state = [seed]
        for i in range(1, 312):
            last = self.state[-1]
            self.state.append((6364136223846793005 * (last ^ last >> 62) + i) % 2**64)
        self.next = 312

    def __call__(self):
        if self.next == 312:
            for i in range(312):
                x = self.state[i] & ~0x7FFFFFFF | self.state[(i + 1) % 312] & 0x7FFFFFFF
                self.state[i] = self.state[(i + 156) % 312] ^ x >> 1 ^ (0xB5026F5AA96619E9 if x & 1 else 0)
            self.next = 0
        y = self.state[self.next]
        self.next += 1
        y ^= y >> 29 & 0x5555555555555555
        y ^= y << 17 & 0x71D67FFFEDA60000
        y ^= y << 37 & 0xFFF7EEE000000000
        return y ^ y >> 43


def sequences(tokens, starts):
    """Batches of up to 32 sequences (examples/char_gpt/sequences.cc)."""
    batches = []
    for first in range(0, len(starts), 32):
        ids = torch.from_numpy(numpy.stack([tokens[start:start + LENGTH + 1] for start in starts[first:first + 32]]))
        batches.append((ids[:, :-1].contiguous(), ids[:, 1:].contiguous()))
    return batches


def answers(model, batch):
    x, y = batch
    logits = model(x).flatten(0, 1)
    values = torch.nn.functional.cross_entropy(logits, y.flatten(), reduction="none").view_as(y)
    return {"values": values, "correct": logits.detach().argmax(-1).view_as(y) == y}


def make_model(weights):
    model = torch_gpt.Gpt(weights, HEADS)
    model.mask = model._buffers.pop("mask")  # no buffer in C++ either
    return model


def make_optimizer(model, state):
    """The C++ program's optimizer, with the moments in its state file."""
    groups = [[p for p in model.parameters() if p.dim() >= 2], [p for p in model.parameters() if p.dim() < 2]]
    optimizer = torch.optim.AdamW(
        [{"params": groups[0], "weight_decay": 0.1}, {"params": groups[1], "weight_decay": 0.0}], lr=RATE, betas=(0.9, 0.95))
    for name, parameter in model.named_parameters():
        optimizer.state[parameter] = {
            "step": torch.tensor(float(STEPS)), "exp_avg": state[f"{name}.exp_avg"], "exp_avg_sq": state[f"{name}.exp_avg_sq"]}
    return optimizer


def differences(mine, theirs, where=""):
    if isinstance(mine, dict) and isinstance(theirs, dict):
        for key in sorted((mine.keys() | theirs.keys()) - APART):
            yield from differences(mine.get(key), theirs.get(key), f"{where}.{key}")
    elif isinstance(mine, list) and isinstance(theirs, list) and len(mine) == len(theirs):
        for i, (a, b) in enumerate(zip(mine, theirs)):
            yield from differences(a, b, f"{where}[{i}]")
    elif mine != theirs:
        yield f"{where}: {mine} here, {theirs} in C++"


def test_equals_the_cpp_program(bin_dir, tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    program = bin_dir / "lr_decay_study"
    if not program.exists():
        pytest.skip(f"{program} was not built")
    generator = random.Random(0)
    words = ["light", "water", "and", "the", "earth", "was", "void", "deep", "said", "let"]
    text = " ".join(generator.choice(words) for _ in range(6000))
    (tmp_path / "text").write_text(text)
    cpp, leg, here = tmp_path / "cpp", tmp_path / "leg", tmp_path / "here"
    leg.mkdir()
    subprocess.run(
        [program, "--leg", leg, "--run-dir", cpp, "--text", tmp_path / "text", "--steps", str(STEPS), "--lr", str(RATE), "--schedule",
         "constant", "--warmup", "0", "--every", "1000", "--quantizers", "rtn3,gptq4", "--group-size", "16", "--length", str(LENGTH),
         "--batch", str(BATCH), "--probe-sequences", str(PROBE), "--calibration-sequences", str(CALIBRATION), "--heads", str(HEADS),
         "--http", "off", "--grpc", "off"],
        check=True, capture_output=True, timeout=120)
    theirs = ptqwatch_reports(cpp)[-1]

    state = safetensors.load_file(leg / "state.safetensors")
    model = make_model({name: value for name, value in state.items() if "exp_avg" not in name})
    tokens = numpy.unique(numpy.frombuffer(text.encode(), numpy.uint8), return_inverse=True)[1].astype(numpy.int64)
    split = len(tokens) // 10 * 9
    training, held_out = tokens[:split], tokens[split:]
    choices = len(held_out) - LENGTH
    draw = Mt64(0x9E3779B97F4A7C15)
    torch.set_num_threads(1)
    monitor = ptqwatch.watch(
        model, mode="thread", losses=answers, probe=sequences(held_out, [i * choices // PROBE for i in range(PROBE)]),
        calibration=sequences(training, [draw() % (len(training) - LENGTH) for _ in range(CALIBRATION)]),
        optimizer=make_optimizer(model, state), run_dir=here, on_failure="error",
        quantizers=[{"method": "rtn", "bits": 3, "group_size": 16}, {"method": "gptq", "bits": 4, "group_size": 16}],
        averaging={"enabled": False}, mixed_precision=False, relative_stderr=1e-6, absolute_stderr_ratio=1e-9,
        max_probe_tokens=PROBE * LENGTH, duty_cycle=1.0, max_bytes=1 << 30, adapt_plan=False, training_threads=1,
        schedule={"decay_density": 1})
    for step in range(1, STEPS + 1):
        monitor.step(step, RATE, step * BATCH * LENGTH)
    assert monitor.finish()
    assert monitor.stop()
    mine = ptqwatch_reports(here)[-1]
    assert mine["curvature"]["edge_of_stability_ratio"] > 0
    assert not list(differences(mine, theirs))
    assert mine["fingerprint"] == theirs["fingerprint"]


def ptqwatch_reports(run_dir):
    return ptqwatch.read_run(run_dir, layers=True)
