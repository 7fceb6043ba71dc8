"""examples/python/parameter_golf.py, on a small trainer with the names and the order of Parameter Golf's train_gpt.py."""

import os
import re
import subprocess
import sys

import ptqwatch
from conftest import ROOT

EXAMPLE = ROOT / "examples/python/parameter_golf.py"
TRAINER = '''
import os

import torch
import torch.nn.functional as F
from torch import nn


class Hyperparameters:
    run_id, val_files, train_seq_len, iterations, matrix_lr = "stand-in", "validation", 8, 50, 0.05
    train_batch_tokens, vocab_size, num_layers, model_dim = 32, 32, 2, 16
    num_heads = num_kv_heads = mlp_mult = 1
    tie_embeddings, tied_embed_init_std, logit_softcap, rope_base, qk_gain_init = True, 0.3, 30.0, 1e4, 1.5


def load_validation_tokens(pattern, seq_len):
    tokens = [int(pattern == "validation")]
    for _ in range(100 * seq_len):
        tokens.append((5 * tokens[-1] + 3) % 31)
    return torch.tensor(tokens).to(torch.uint16)


class GPT(nn.Module):
    def __init__(self, vocab_size, num_layers, model_dim, tied_embed_init_std, logit_softcap, **others):
        super().__init__()
        self.tok_emb = nn.Embedding(vocab_size, model_dim)
        nn.init.normal_(self.tok_emb.weight, std=tied_embed_init_std)
        self.blocks = nn.ModuleList([nn.Linear(model_dim, model_dim, bias=False) for _ in range(num_layers)])
        self.softcap = logit_softcap

    def forward(self, ids, targets):
        x = self.tok_emb(ids)
        for block in self.blocks:
            x = x + torch.relu(block(x)).square()
        logits = F.linear(F.rms_norm(x, (x.size(-1),)), self.tok_emb.weight)
        return F.cross_entropy((self.softcap * torch.tanh(logits / self.softcap)).flatten(0, 1), targets.flatten())


def quantize_state_dict_int8(state):
    return {"quantized": {name: (w / 0.01).round() for name, w in state.items()}}, {}


def dequantize_state_dict_int8(exported):
    return {name: codes * 0.01 for name, codes in exported["quantized"].items()}


def main():
    args, local_rank, master_process, scale = Hyperparameters(), 0, True, 1.0
    if not torch.cuda.is_available():
        raise RuntimeError("CUDA is required")
    device = torch.device("cuda", local_rank)
    torch.cuda.set_device(device)
    val_tokens = load_validation_tokens(args.val_files, args.train_seq_len)
    shape = {name: value for name, value in vars(Hyperparameters).items() if not name.startswith("_")}
    base_model = GPT(**shape).to(device)
    compiled_model = torch.compile(base_model, dynamic=False, fullgraph=True)
    optimizer = torch.optim.Adam(base_model.parameters(), lr=args.matrix_lr)

    training_time_ms = 0.0
    torch.cuda.synchronize()
    step = 0
    while step < args.iterations:
        tokens = val_tokens[step:step + 33].long().to(device)
        with torch.autocast(device_type="cuda", dtype=torch.bfloat16, enabled=True):
            train_loss = compiled_model(tokens[:-1].view(4, 8), tokens[1:].view(4, 8))
        train_loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        approx_training_time_ms = training_time_ms

    if master_process:
        torch.save(base_model.state_dict(), "final_model.pt")


if __name__ == "__main__":
    main()
'''


def run(folder, *arguments):
    done = subprocess.run([sys.executable, EXAMPLE, folder / "out", *arguments], env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
    return done.returncode, done.stdout


def test_adds_its_lines_trains_and_compares_the_export(tmp_path):
    (tmp_path / "train_gpt.py").write_text(TRAINER)
    status, said = run(tmp_path, "--trainer", tmp_path / "train_gpt.py")
    assert status == 0, said
    assert "tok_emb.weight" in said.split("left in full precision")[0], said
    report = ptqwatch.read_run(tmp_path / "out/runs/stand-in")[-1]
    assert report["step"] == 50 and report["tokens"] == 50 * 32 and report["learning_rate"] == 0.05
    assert [f"{row['method']}{row['bits']}" for row in report["quantization"]] == ["rtn8", "gptq4", "rtn4"]

    status, said = run(tmp_path, "--compare")
    assert status == 0, said
    changes = {name: float(value) for name, value in re.findall(r"^(.*) ([+-][\d.]+), of 3 tensors", said, re.MULTILINE)}
    assert len(changes) == 6 and len(re.findall("the same ones", said)) == 5, said
    for row in report["quantization"]:
        (change,) = [change for name, change in changes.items() if re.match(rf"{row['method']} b{row['bits']} g128", name)]
        assert abs(change - row["delta_nats"]) < 1e-5, (row["method"], row["bits"])


def test_says_which_line_a_trainer_lacks(tmp_path):
    (tmp_path / "train_gpt.py").write_text(TRAINER.replace("approx_training_time_ms", "elapsed"))
    status, said = run(tmp_path, "--trainer", tmp_path / "train_gpt.py")
    assert status == 1 and "no line like" in said and "monitor.step(step" in said
