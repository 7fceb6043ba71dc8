"""python -m ptqwatch.dcp: checkpoints of torch.distributed.checkpoint become safetensors with Hugging Face's names."""

import json
import os
import pathlib
import pickle
import random
import resource
import shutil
import subprocess

import numpy
import pytest
import torch
import torch.distributed.checkpoint

import ptqwatch
from ptqwatch import dcp

LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 48, "hidden_size": 32, "intermediate_size": 24, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
         "tie_word_embeddings": False}
QWEN3 = {**LLAMA, "model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "head_dim": 16}
# A rank of a training run: one step of AdamW on a model with torchtitan's names. No dimension divides by the number of ranks.
RANK = """
    import os, sys
    import torch
    import torch.distributed
    from torch import nn
    from torch.distributed.checkpoint import save
    from torch.distributed.checkpoint.state_dict import get_model_state_dict, get_optimizer_state_dict
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    rank, ranks, store, folder, whole = int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    def module(**parts):
        made = nn.Module()
        for name, part in parts.items():
            made.add_module(name, part)
        return made

    linear = lambda rows: nn.Linear(6, rows, bias=False)
    torch.manual_seed(0)
    block = module(attention=module(wq=linear(10), wk=linear(5), wv=linear(5), q_norm=nn.RMSNorm(5)), ffn_norm=nn.RMSNorm(6))
    model = module(tok_embeddings=nn.Embedding(7, 6), layers=nn.ModuleDict({"0": block}), norm=nn.RMSNorm(6), output=linear(7))
    mesh = init_device_mesh("cpu", (ranks,))
    fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for parameter in model.parameters():
        parameter.grad = parameter.detach().sin()
    optimizer.step()
    state = get_model_state_dict(model)
    save({**state, "optimizer": get_optimizer_state_dict(model, optimizer), "train_state": {"step": torch.tensor(1)}, "lr_scheduler": {"last_epoch": 1}},
         checkpoint_id=folder)
    gathered = {name: value.full_tensor() for name, value in state.items()}
    if rank == 0:
        torch.save(gathered, whole)
    torch.distributed.destroy_process_group()
"""
HUGGING_FACE = {"tok_embeddings": "model.embed_tokens", "norm": "model.norm", "output": "lm_head",
                "layers.0.ffn_norm": "model.layers.0.post_attention_layernorm",
                **{f"layers.0.attention.w{part}": f"model.layers.0.self_attn.{part}_proj" for part in "qkv"},
                "layers.0.attention.q_norm": "model.layers.0.self_attn.q_norm"}

safetensors = pytest.importorskip("safetensors.torch")


def titan_state(config):
    """Random weights with torchtitan's names."""
    hidden, heads, kv_heads, feed = (config[key] for key in ("hidden_size", "num_attention_heads", "num_key_value_heads", "intermediate_size"))
    head = config.get("head_dim", hidden // heads)
    matrix = lambda *shape: 0.3 * torch.randn(*shape)
    norm = lambda size: 1 + 0.2 * torch.randn(size)
    state = {"tok_embeddings.weight": matrix(config["vocab_size"], hidden), "norm.weight": norm(hidden),
             "output.weight": matrix(config["vocab_size"], hidden)}
    for layer in range(config["num_hidden_layers"]):
        block = {"attention.wq": matrix(heads * head, hidden), "attention.wk": matrix(kv_heads * head, hidden),
                 "attention.wv": matrix(kv_heads * head, hidden),
                 "attention.wo": matrix(hidden, heads * head), "feed_forward.w1": matrix(feed, hidden), "feed_forward.w2": matrix(hidden, feed),
                 "feed_forward.w3": matrix(feed, hidden), "attention_norm": norm(hidden), "ffn_norm": norm(hidden)}
        if config["model_type"] == "qwen3":
            block |= {"attention.q_norm": norm(head), "attention.k_norm": norm(head)}
        state |= {f"layers.{layer}.{name}.weight": value for name, value in block.items()}
    return state


def rms_norm(x, weight):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * weight


def rotate(x, theta, interleaved):
    """x has the shape [tokens, heads, head_dim]. Llama in torchtitan rotates elements 2i and 2i + 1, Qwen 3 elements i and i + head_dim / 2."""
    size = x.shape[-1]
    angles = torch.outer(torch.arange(x.shape[0]).float(), theta**(-torch.arange(0, size, 2).float() / size)).unsqueeze(1)
    first, second = (x[..., 0::2], x[..., 1::2]) if interleaved else x.split(size // 2, -1)
    turned = first * angles.cos() - second * angles.sin(), first * angles.sin() + second * angles.cos()
    return torch.stack(turned, -1).flatten(-2) if interleaved else torch.cat(turned, -1)


def titan_logits(state, config, ids):
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    h = state["tok_embeddings.weight"][ids]
    mask = torch.full((len(ids), len(ids)), float("-inf")).triu(1)
    for layer in range(config["num_hidden_layers"]):
        weight = lambda name: state[f"layers.{layer}.{name}.weight"]
        x = rms_norm(h, weight("attention_norm"))
        q, k, v = ((x @ weight(f"attention.w{part}").T).unflatten(-1, (count, -1)) for part, count in (("q", heads), ("k", kv_heads), ("v", kv_heads)))
        if config["model_type"] == "qwen3":
            q, k = rms_norm(q, weight("attention.q_norm")), rms_norm(k, weight("attention.k_norm"))
        q, k = (rotate(part, config["rope_theta"], config["model_type"] == "llama") for part in (q, k))
        k, v = (part.repeat_interleave(heads // kv_heads, 1) for part in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q, k) / q.shape[-1]**0.5 + mask
        h = h + torch.einsum("hqk,khd->qhd", scores.softmax(-1), v).flatten(1) @ weight("attention.wo").T
        x = rms_norm(h, weight("ffn_norm"))
        h = h + (torch.nn.functional.silu(x @ weight("feed_forward.w1").T) * (x @ weight("feed_forward.w3").T)) @ weight("feed_forward.w2").T
    return rms_norm(h, state["norm.weight"]) @ state["output.weight"].T


@pytest.fixture
def folders(tmp_path):
    """Source, destination and a file with Llama's config."""
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    return tmp_path / "checkpoint", tmp_path / "converted", tmp_path / "config.json"


def save(state, folder):
    torch.distributed.checkpoint.save(state, checkpoint_id=folder, no_dist=True)


def convert(source, dest, config, *more):
    return dcp.main([str(source), str(dest), "--config", str(config), *more])


def load(dest, step):
    return safetensors.load_file(dest / f"step-{step}" / "model.safetensors")


def same_bits(a, b):
    bits = lambda tensors: {name: (tensor.dtype, tensor.shape, tensor.flatten().view(torch.uint8).tolist()) for name, tensor in tensors.items()}
    return bits(a) == bits(b)


@pytest.mark.parametrize("ranks", [2, 4])
def test_shards_of_ranks_become_whole_tensors(start_script, folders, tmp_path, ranks):
    """Uneven and empty shards; optimizer state, the scheduler's and the step are left out."""
    source, dest, config = folders
    config.write_text(json.dumps(QWEN3))
    processes = [start_script(RANK, rank, ranks, tmp_path / "store", source / "step-1", tmp_path / "whole.pt") for rank in range(ranks)]
    for process in processes:
        process.end()
    assert convert(source, dest, config) == 0
    whole = {f"{HUGGING_FACE[name.removesuffix('.weight')]}.weight": value for name, value in torch.load(tmp_path / "whole.pt").items()}
    assert len(whole) == 8 and same_bits(load(dest, 1), whole)


@pytest.mark.parametrize("config", [LLAMA, QWEN3], ids=["llama", "qwen3"])
@pytest.mark.parametrize("later_names", [False, True])
def test_hugging_face_computes_what_torchtitan_does(folders, config, later_names):
    transformers = pytest.importorskip("transformers")
    source, dest, file = folders
    file.write_text(json.dumps(config))
    state = titan_state(config)
    ids = torch.randint(config["vocab_size"], (16,))
    expected = titan_logits(state, config, ids)
    if later_names:
        renamed = {name.replace("attention.w", "attention.qkv_linear.w") if "wo" not in name else name: value for name, value in state.items()}
        renamed["lm_head.weight"] = renamed.pop("output.weight")
        state = renamed
    save(state, source / "step-10")
    assert convert(source, dest, file) == 0
    model = transformers.AutoModelForCausalLM.from_pretrained(dest / "step-10", attn_implementation="eager")
    with torch.no_grad():
        logits = model(ids.unsqueeze(0)).logits[0]
    torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("wrapper", ["", "model.", "app.model.", "_orig_mod."])
def test_keeps_names_of_hugging_face_and_types(folders, wrapper):
    source, dest, config = folders
    model = {"model.embed_tokens.weight": torch.randn(5, 4), "model.norm.weight": torch.randn(3).bfloat16(), "lm_head.weight": torch.randn(5, 4).half(),
             "model.layers.0.self_attn.q_proj.weight": torch.randn(8, 4).double()}
    save({**{wrapper + name: value for name, value in model.items()}, "optimizer.state.model.embed_tokens.weight.exp_avg": torch.ones(5, 4),
          "train_state.step": torch.tensor(3)}, source / "step-10")
    assert convert(source, dest, config) == 0
    assert same_bits(load(dest, 10), model)
    assert json.loads((dest / "step-10/config.json").read_text()) == LLAMA


def test_trajectory_measures_it(bin_dir, folders, tmp_path):
    """The report is that of the same weights saved by safetensors."""
    program = bin_dir / "ptqwatch-trajectory"
    if not program.exists():
        pytest.skip(f"{program} was not built")
    source, dest, config = folders
    state = titan_state(LLAMA)
    save({"model": state}, source / "step-10")
    assert convert(source, dest, config) == 0
    whole = tmp_path / "whole/step-10"
    whole.mkdir(parents=True)
    shutil.copyfile(config, whole / "config.json")
    safetensors.save_file(load(dest, 10), whole / "model.safetensors")
    generator = random.Random(1)
    numpy.array([generator.randrange(48) for _ in range(8 * 16 + 1)], numpy.uint16).tofile(tmp_path / "tokens.bin")
    reports = []
    for number, folder in enumerate((dest, whole.parent)):
        subprocess.run([program, folder, "--probe", tmp_path / "tokens.bin", "--calibration", tmp_path / "tokens.bin", "--length", "16", "--run-dir",
                        tmp_path / f"run{number}", "--quantizers", "gptq3,rtn4", "--threads", "1", "--no-curvature"], check=True, timeout=120)
        (report,) = ptqwatch.read_run(tmp_path / f"run{number}")
        reports.append({key: value for key, value in report.items() if key not in ("run_id", "snapshot_time_unix_seconds", "cost")})
    assert reports[0]["step"] == 10 and reports[0]["probe_status"] == "ok"
    assert reports[0] == reports[1]
    ids = torch.from_numpy(numpy.fromfile(tmp_path / "tokens.bin", numpy.uint16).astype(numpy.int64))
    losses = [torch.nn.functional.cross_entropy(titan_logits(state, LLAMA, ids[i:i + 16]), ids[i + 1:i + 17]) for i in range(0, 128, 16)]
    assert reports[0]["probe_loss_nats"] == pytest.approx(float(torch.stack(losses).mean()), rel=1e-5)


def test_checkpoints_of_hugging_faces_trainer(folders):
    """accelerate puts the weights into a folder of the checkpoint, whose trainer_state.json has the learning rates."""
    source, dest, config = folders
    model = {"model.embed_tokens.weight": torch.randn(5, 4)}
    save({"model": model}, source / "checkpoint-500/pytorch_model_fsdp_0")
    save({"state": {"model.embed_tokens.weight": {"exp_avg": torch.randn(5, 4)}}}, source / "checkpoint-500/optimizer_0")
    assert dcp._complete(source, True) == []
    (source / "checkpoint-500/trainer_state.json").write_text('{"global_step": 500}')
    assert convert(source, dest, config, "--follow", "--until", "500") == 0
    assert same_bits(safetensors.load_file(dest / "checkpoint-500/model.safetensors"), model)
    assert json.loads((dest / "checkpoint-500/trainer_state.json").read_text()) == {"global_step": 500}


def test_follows_a_trainer(folders, monkeypatch, capsys):
    """A checkpoint that is incomplete is tried again when its files change, and one that was removed is left out."""
    source, dest, config = folders
    state = titan_state(LLAMA)

    def begin():  # DCP writes .metadata last
        save(state, source / "step-10")
        (source / "step-10/.metadata").rename(source / "step-10/.metadata.tmp")

    def damage():
        assert not dest.joinpath("step-10").exists()
        shutil.copyfile(source / "step-10/__0_0.distcp", source / "whole")
        os.truncate(source / "step-10/__0_0.distcp", 100)
        (source / "step-10/.metadata.tmp").rename(source / "step-10/.metadata")

    def wait():
        assert capsys.readouterr().err.count("step-10 is left out") == 1

    def repair():
        assert not capsys.readouterr().err
        (source / "whole").rename(source / "step-10/__0_0.distcp")
        save(state, source / "step-20")

    def remove(_):
        if remove.armed:
            shutil.rmtree(source / "step-20")
            remove.armed = False
        return read(_)

    read, remove.armed = dcp._metadata, True
    monkeypatch.setattr(dcp, "_metadata", lambda path: remove(path) if path.parent.name == "step-20" else read(path))
    last = lambda: save(state, source / "step-30")
    stages = iter([begin, damage, wait, repair, last])
    monkeypatch.setattr(dcp.time, "sleep", lambda seconds: next(stages)())
    assert convert(source, dest, config, "--follow", "--until", "30") == 0
    assert sorted(path.name for path in dest.iterdir()) == ["step-10", "step-30"]
    said = capsys.readouterr()
    assert said.out.count("step-10: 21 tensors") == 1 and said.err == "step-20 is left out: it was removed meanwhile\n"


def test_a_checkpoint_that_is_written_anew_meanwhile_is_left_out(folders, monkeypatch, capsys):
    source, dest, config = folders
    save(titan_state(LLAMA), source / "step-10")
    write = dcp._write

    def and_anew(*arguments):
        size = write(*arguments)
        save(titan_state(LLAMA), source / "step-10")
        return size

    monkeypatch.setattr(dcp, "_write", and_anew)
    assert convert(source, dest, config) == 1
    assert capsys.readouterr().err == "step-10 is left out: it was written anew meanwhile\n" and list(dest.iterdir()) == []


@pytest.mark.parametrize(("step", "names"), [
    (10, ["step10", "step-10", "step_010", "global_step10", "iter_0000010", "checkpoint-10", "ckpt_10", "stage1-step10", "a-step-b-step10", "step10-tokens2.5M", "step10_tokens300"]),
    (-1, ["main", "10", "step", "step-", "footstep5", "-step5", "step5-unsharded", "step-5.partial", "step-5_old", "step5x", "step5-tokensB", "step5-tokens1.2.3B",
          "step99999999999999999999", "tmp-checkpoint-5"])])
def test_steps_are_those_that_trajectory_finds(step, names):
    """checkpoint_name_test has the same names, but those that are written at the time."""
    assert {name: dcp._step(name) for name in names} == dict.fromkeys(names, step)


def test_converts_once(folders, capsys):
    source, dest, config = folders
    save(titan_state(LLAMA), source / "step-10")
    assert convert(source, dest, config) == convert(source, dest, config) == 0
    assert "step-10: converted already" in capsys.readouterr().out
    shutil.rmtree(source)
    save(titan_state(LLAMA), source / "step-10")
    assert convert(source, dest, config) == 1
    assert f"{dest}/step-10 was not made from" in capsys.readouterr().err


@pytest.mark.parametrize(("more", "status"), [([], 130), (["--follow"], 0)])
def test_ctrl_c_leaves_nothing_half_written(folders, monkeypatch, more, status):
    source, dest, config = folders
    save(titan_state(LLAMA), source / "step-10")
    read, keys = dcp._Tensors.read, []

    def interrupted(self, key, heads):
        keys.append(key)
        if len(keys) == 5:
            raise KeyboardInterrupt
        return read(self, key, heads)

    monkeypatch.setattr(dcp._Tensors, "read", interrupted)
    (dest / "tmp-dcp-step-5").mkdir(parents=True)  # of a process that was killed
    assert convert(source, dest, config, *more) == status
    assert len(keys) == 5 and list(dest.iterdir()) == []


def test_a_full_disk_leaves_nothing(folders, capsys):
    source, dest, config = folders
    save({"model.embed_tokens.weight": torch.randn(1000, 100)}, source / "step-10")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        assert convert(source, dest, config) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(dest.iterdir()) == [] and "File too large" in capsys.readouterr().err


def test_one_process_converts_to_a_folder(folders, capsys):
    source, dest, config = folders
    save(titan_state(LLAMA), source / "step-10")
    with dcp._only_one(dest):
        assert convert(source, dest, config) == 1
    assert "another process converts to" in capsys.readouterr().err


class Malice:
    def __reduce__(self):
        return os.mkdir, ("made by a pickle",)


def damage_pickle(folder):
    metadata = pickle.loads((folder / ".metadata").read_bytes())
    metadata.planner_data = Malice()
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))


def damage_part(folder):
    metadata = pickle.loads((folder / ".metadata").read_bytes())
    metadata.state_dict_metadata["norm.weight"].chunks.clear()
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))


def damage_place(folder):
    metadata = pickle.loads((folder / ".metadata").read_bytes())
    next(info for index, info in metadata.storage_data.items() if index.fqn == "norm.weight").relative_path = "../elsewhere"
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))


def damage_data(folder):
    data = bytearray((folder / "__0_0.distcp").read_bytes())
    data[len(data) // 2:len(data) // 2 + 4000] = bytes(4000)
    (folder / "__0_0.distcp").write_bytes(data)


@pytest.mark.parametrize(("damage", "says"), [
    (damage_pickle, "names posix.mkdir, which no checkpoint needs"),
    (damage_part, "the parts of tensor norm.weight in .metadata do not make up the whole of [32]"),
    (damage_place, "names the file '../elsewhere'"),
    (damage_data, "cannot read tensor"),
    (lambda folder: os.truncate(folder / ".metadata", 500), ".metadata: "),
    (lambda folder: (folder / ".metadata").write_bytes(pickle.dumps([1])), "is not the metadata of a checkpoint"),
    (lambda folder: os.truncate(folder / "__0_0.distcp", 1000), "__0_0.distcp is missing or cut short: 1,000 bytes instead of"),
    (lambda folder: os.remove(folder / "__0_0.distcp"), "__0_0.distcp is missing"),
])
def test_a_damaged_checkpoint_is_left_out(folders, capsys, damage, says):
    source, dest, config = folders
    save(titan_state(LLAMA), source / "step-10")
    save(titan_state(LLAMA), source / "step-20")
    damage(source / "step-10")
    assert convert(source, dest, config) == 1
    assert [path.name for path in dest.iterdir()] == ["step-20"]
    said = capsys.readouterr().err
    assert said.startswith("step-10 is left out: ") and says in said
    assert not pathlib.Path("made by a pickle").exists()


EMBEDDING = {"tok_embeddings.weight": torch.zeros(4, 4)}


@pytest.mark.parametrize(("state", "config", "more", "says"), [
    ({"x": torch.zeros(2)}, LLAMA, [], "no embedding"),
    ({"a": EMBEDDING, "b": EMBEDDING}, LLAMA, [], "several embeddings: a.tok_embeddings.weight, b.tok_embeddings.weight; --prefix"),
    (EMBEDDING, LLAMA, ["--prefix", "model."], "wte.weight) has a name that begins so; there are tok_embeddings.weight"),
    ({"model.w": torch.zeros(2)}, LLAMA, ["--prefix", "model"], "--prefix 'model.': no embedding"),
    (EMBEDDING, {"model_type": "mistral"}, [], "Llama 3 and Qwen 3, and config.json has the model_type 'mistral'"),
    (EMBEDDING, {}, [], "config.json has the model_type None"),
    (EMBEDDING, [1], [], "config.json: cannot convert"),
    (EMBEDDING, {"model_type": "llama"}, [], "num_attention_heads and num_key_value_heads are (None, None)"),
    ({**EMBEDDING, "layers.0.moe.router.gate.weight": torch.zeros(2)}, QWEN3, [], "torchtitan's qwen3 has no layers.0.moe.router.gate.weight"),
    ({**EMBEDDING, "layers.0.attention.q_norm.weight": torch.zeros(2)}, LLAMA, [], "torchtitan's llama has no layers.0.attention.q_norm.weight"),
    ({**EMBEDDING, "layers.0.attention.wq.bias": torch.zeros(2)}, LLAMA, [], "torchtitan's llama has no layers.0.attention.wq.bias"),
    ({**EMBEDDING, "ema.norm.weight": torch.zeros(2)}, LLAMA, [], "--leave-out NAME"),
    ({**EMBEDDING, "layers.0.attention.wq.weight": torch.zeros(6, 4)}, LLAMA, [], "[6, 4], which is not 4 heads of an even size"),
    ({**EMBEDDING, "output.weight": torch.zeros(2), "lm_head.weight": torch.zeros(2)}, LLAMA, [], "are both lm_head.weight"),
    ({"tok_embeddings.weight": torch.zeros(4, 4).to(torch.float8_e4m3fn)}, LLAMA, [], "tok_embeddings.weight is torch.float8_e4m3fn; only torch.bfloat16, "),
])
def test_refuses(folders, capsys, state, config, more, says):
    source, dest, file = folders
    file.write_text(json.dumps(config))
    save(state, source / "step-10")
    assert convert(source, dest, file, *more, "--follow") == 1
    assert says in capsys.readouterr().err and list(dest.iterdir()) == []


def test_options_select_a_model(folders):
    source, dest, config = folders
    model = {"tok_embeddings.weight": torch.randn(4, 4)}
    save({"a": model, "b": EMBEDDING, "ema.x": torch.zeros(2)}, source / "step-10")
    assert convert(source, dest, config, "--prefix", "a") == 0
    assert same_bits(load(dest, 10), {"model.embed_tokens.weight": model["tok_embeddings.weight"]})
    save({**model, "ema": EMBEDDING}, source / "step-20")
    assert convert(source / "step-20", dest, config, "--leave-out", "ema") == 0
    assert same_bits(load(dest, 20), load(dest, 10))


def test_refuses_wrong_arguments(folders, tmp_path, capsys):
    source, dest, config = folders
    wrong = lambda *arguments: (dcp.main([str(argument) for argument in arguments]), capsys.readouterr().err)
    assert "has no .metadata" in wrong(source, dest)[1]
    save(EMBEDDING, source / "step-10")
    assert f"cannot read {source}/step-10/config.json: " in wrong(source, dest)[1]
    assert f"cannot read {tmp_path}/none.json: " in wrong(source, dest, "--config", tmp_path / "none.json")[1]
    assert f"DEST {source}/x lies in SOURCE" in wrong(source, source / "x", "--config", config)[1]
    (source / "step-10/common.pt").touch()
    status, said = wrong(source, dest, "--config", config)
    assert status == 1 and "Megatron-Bridge's export_ckpt" in said
    with pytest.raises(SystemExit) as exit_:
        wrong(source, dest, "--until", "3")
    assert exit_.value.code == 2
