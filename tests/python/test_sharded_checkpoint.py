"""Shards that torch.distributed.checkpoint writes, measured by ptqwatch trajectory."""

import inspect
import json
import random
import subprocess
import sys

import numpy
import pytest
import torch
import torch.distributed.checkpoint

import ptqwatch

CONFIG = {"model_type": "llama", "vocab_size": 48, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
          "num_key_value_heads": 4, "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu",
          "tie_word_embeddings": False}
# Three ranks with uneven chunks, replicas of two shards, and a mesh that cuts matrices in both dimensions.
WRITE = """
import sys
import torch
import torch.distributed
from torch.distributed.checkpoint import HuggingFaceStorageWriter, save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

rank, store, state, folder, layout = int(sys.argv[1]), *sys.argv[2:]
sizes = {"fsdp": (3,), "hsdp": (2, 2), "tp": (2, 2)}[layout]
world = sizes[0] * (sizes[1] if len(sizes) > 1 else 1)
torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
mesh = init_device_mesh("cpu", sizes)
cuts = {"fsdp": lambda t: [Shard(0)], "hsdp": lambda t: [Replicate(), Shard(0)], "tp": lambda t: [Shard(0), Shard(1) if t.dim() > 1 else Replicate()]}
tensors = {name: distribute_tensor(t, mesh, cuts[layout](t)) for name, t in torch.load(state).items()}
save(tensors, storage_writer=HuggingFaceStorageWriter(path=folder, save_distributed=True))
torch.distributed.destroy_process_group()
"""


def shapes():
    yield "model.embed_tokens.weight", (48, 32)
    for block in range(2):
        at = f"model.layers.{block}."
        yield from ((f"{at}self_attn.{name}_proj.weight", (32, 32)) for name in "qkvo")
        yield from ((f"{at}mlp.{name}_proj.weight", size) for name, size in (("gate", (64, 32)), ("up", (64, 32)), ("down", (32, 64))))
        yield from ((f"{at}{name}_layernorm.weight", (32,)) for name in ("input", "post_attention"))
    yield "model.norm.weight", (32,)
    yield "lm_head.weight", (48, 32)


@pytest.mark.parametrize("layout", ["fsdp", "hsdp", "tp"])
def test_shards_give_what_the_whole_gives(bin_dir, tmp_path, layout):
    safetensors = pytest.importorskip("safetensors.torch")
    writer = getattr(torch.distributed.checkpoint, "HuggingFaceStorageWriter", None)
    if writer is None or "save_distributed" not in inspect.signature(writer).parameters:
        pytest.skip("this PyTorch writes no shards of safetensors")
    program = bin_dir / "ptqwatch-trajectory"
    if not program.exists():
        pytest.skip(f"{program} was not built")
    torch.manual_seed(0)
    state = {name: torch.ones(shape) if "norm" in name else 0.2 * torch.randn(shape) for name, shape in shapes()}
    whole, shards = tmp_path / "whole/step-10", tmp_path / "shards/step-10"
    whole.mkdir(parents=True), shards.mkdir(parents=True)
    safetensors.save_file(state, whole / "model.safetensors")
    torch.save(state, tmp_path / "state.pt")
    for config in (whole / "config.json", tmp_path / "config.json"):
        config.write_text(json.dumps(CONFIG))
    ranks = [subprocess.Popen([sys.executable, "-c", WRITE, str(rank), tmp_path / "store", tmp_path / "state.pt", shards, layout])
             for rank in range(3 if layout == "fsdp" else 4)]
    assert [rank.wait(timeout=120) for rank in ranks] == [0] * len(ranks)
    generator = random.Random(1)
    numpy.array([generator.randrange(48) for _ in range(8 * 16 + 1)], numpy.uint16).tofile(tmp_path / "tokens.bin")
    reports = []
    for folder, more in ((whole, []), (shards, ["--config", tmp_path / "config.json"])):
        run_dir = tmp_path / f"run-{folder.parent.name}"
        subprocess.run([program, folder, "--probe", tmp_path / "tokens.bin", "--calibration", tmp_path / "tokens.bin", "--length", "16",
                        "--run-dir", run_dir, "--quantizers", "gptq3,rtn4", "--threads", "1", "--no-curvature", *more], check=True, timeout=120)
        (report,) = ptqwatch.read_run(run_dir)
        reports.append({key: value for key, value in report.items() if key not in ("run_id", "snapshot_time_unix_seconds", "cost")})
    assert reports[0]["probe_status"] == "ok"
    assert reports[0] == reports[1]
