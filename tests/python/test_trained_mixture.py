"""Quantization error of a small OLMoE that Hugging Face's Trainer has trained on the King James text: `ptqwatch trajectory` on its checkpoint, and
`quantize_model` on the model itself, give the same."""

import copy
import json
import os
import pathlib
import shutil
import subprocess
import sys

import numpy
import pytest
import torch

import ptqwatch

TRAINER = pathlib.Path(__file__).resolve().parents[1] / "integration" / "hf_trainer.py"
LENGTH, PROBE, CALIBRATION, EXPERTS = 64, 48, 24, 16


def losses(model, batch):
    logits = model(batch[:, :-1]).logits
    return torch.nn.functional.cross_entropy(logits.transpose(1, 2), batch[:, 1:], reduction="none")


def mean_loss(model, batch):
    with torch.no_grad():
        return losses(model, batch).double().mean().item()


def sequences(path, count):
    """Shortens the file to `count` sequences; gives them, each of which begins with the last token of the one before."""
    tokens = numpy.fromfile(path, numpy.uint16)[:count * LENGTH + 1]
    tokens.tofile(path)
    return torch.from_numpy(tokens.astype(numpy.int64)).unfold(0, LENGTH + 1, LENGTH)


def test_error_is_that_of_quantize_model(tmp_path, bin_dir):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    if shutil.which("bible") is None or not (bin_dir / "ptqwatch-trajectory").exists():
        pytest.skip("the King James text or trajectory is not there")
    with open(tmp_path / "bible.txt", "wb") as text:
        subprocess.run(["bible", "-l79", "Gen1:1-Rev22:21"], stdout=text, timeout=60, check=True)
    subprocess.run([sys.executable, TRAINER, "--text", "bible.txt", "--output", "out", "--steps", "200", "--every", "200", "--rate", "3e-3", "--width", "48",
                    "--layers", "2", "--experts", str(EXPERTS)], cwd=tmp_path, check=True, timeout=300, env={**os.environ, "OMP_NUM_THREADS": "1"})
    probe, calibration = sequences(tmp_path / "out/probe.bin", PROBE), sequences(tmp_path / "out/calibration.bin", CALIBRATION)
    quantizers = ["rtn3", "gptq3", "gptq4"]
    subprocess.run([bin_dir / "ptqwatch", "trajectory", "out/checkpoint-200", "--probe", "out/probe.bin", "--calibration", "out/calibration.bin", "--length",
                    str(LENGTH), "--run-dir", "run", "--quantizers", ",".join(quantizers), "--threads", "1"], cwd=tmp_path, check=True, timeout=300)
    history = subprocess.run([bin_dir / "ptqwatch", "history", tmp_path / "run", "--json"], check=True, timeout=60, capture_output=True)
    report = json.loads(history.stdout)
    model = transformers.OlmoeForCausalLM.from_pretrained(tmp_path / "out/checkpoint-200").eval()
    loss = mean_loss(model, probe)
    assert report["probe_loss_nats"] == pytest.approx(loss, abs=1e-6)
    assert report["curvature"]["status"] == "ok" and report["curvature"]["mode"] != "finite_difference"
    for found, expected in zip(report["quantization"], ptqwatch.quantize_model(model, losses, [calibration], quantizers, threads=1), strict=True):
        other = copy.deepcopy(model)
        expected.load_into(other)
        assert found["error_ratio"] == pytest.approx(mean_loss(other, probe) / loss - 1, abs=1e-6)
        assert abs(found["error_ratio"]) > 1e-4
        stack = next(layer for layer in found["layers"] if layer["name"] == "model.layers.1.mlp.experts.down_proj")
        tokens = [expected.layers[f"{stack['name']}[{i}]"].tokens for i in range(EXPERTS)]
        assert (stack["stacked"], stack["tokens"]) == (EXPERTS, sum(tokens))
        assert sum(tokens) == 2 * CALIBRATION * LENGTH and min(tokens) < max(tokens) / 2
