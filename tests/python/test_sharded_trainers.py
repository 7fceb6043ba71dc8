"""Hugging Face's Trainer with a model that accelerate shards, as FSDP1 or FSDP2, watched on every rank."""

import json
import os
import pathlib

import pytest

HERE = pathlib.Path(__file__).resolve().parent
WRAPPED = {"transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"]}
FSDP1 = {"version": 1, "sync_module_states": False, **WRAPPED}


@pytest.mark.parametrize(("config", "bf16"), [({**FSDP1, "use_orig_params": True}, True), ({**FSDP1, "use_orig_params": False}, False), ({"version": 2, **WRAPPED}, True)])
def test_the_trainers_reports_are_those_of_a_plain_model(forks, tmp_path, config, bf16):
    """FSDP1 rounds buffers in bfloat16. An evaluation before each snapshot leaves FSDP2's root unsharded."""
    pytest.importorskip("accelerate")
    pytest.importorskip("transformers")
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])}
    processes = []
    for rank in range(2):
        with open(os.devnull) as nothing, (tmp_path / f"{rank}.out").open("w") as out, (tmp_path / f"{rank}.err").open("w") as err:
            arguments = [rank, 2, tmp_path, json.dumps(config), int(bf16)]
            processes.append(forks.start([HERE / "sharded_hf_trainer.py", *map(str, arguments)], tmp_path, environment,
                                         [nothing.fileno(), out.fileno(), err.fileno()]))
    for rank, process in enumerate(processes):
        assert process.wait() == 0, (tmp_path / f"{rank}.err").read_text()
    watched, plain = json.loads((tmp_path / "0.out").read_text().splitlines()[-1])
    assert watched["step"] == 4 and [row["status"] for row in watched["quantization"]] == ["ok", "ok"]
    for key in ("step", "snapshot_digest", "probe_loss_nats", "quantization"):
        assert watched[key] == plain[key], key
    assert not (tmp_path / "ptqwatch/shards").exists()
