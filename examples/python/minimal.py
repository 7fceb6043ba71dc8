"""Trains a small character model with ptqwatch beside it:   python examples/python/minimal.py [RUN_DIR]"""

import pathlib
import sys

import torch
from torch import nn

import ptqwatch

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
TEXT = torch.tensor(list("".join(path.read_text() for path in sorted(DOCS.glob("*.md"))).encode()))
LENGTH, STEPS, DECAY, RATE = 16, 2000, 500, 3e-3


def make_model():
    return nn.Sequential(nn.Embedding(256, 32), nn.Flatten(1), nn.Linear(32 * LENGTH, 256), nn.GELU(),
                         nn.Linear(256, 128), nn.GELU(), nn.Linear(128, 256))


def losses(model, batch):
    """Nats, one for each example."""
    context, target = batch
    return nn.functional.cross_entropy(model(context), target, reduction="none")


def draw(text, count, generator):
    starts = torch.randint(len(text) - LENGTH, (count,), generator=generator)
    windows = text[starts[:, None] + torch.arange(LENGTH + 1)]
    return windows[:, :-1], windows[:, -1]


def main(run_dir):
    torch.manual_seed(0)
    torch.set_num_threads(1)  # leaves a core to the monitor
    held_out, text = TEXT[:40000], TEXT[40000:]
    data = torch.Generator().manual_seed(1)
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters())
    probe = [draw(held_out, 512, data) for _ in range(8)]
    with ptqwatch.watch(model, build=make_model, losses=losses, probe=probe, every=125, run_dir=run_dir) as monitor:
        for step in range(1, STEPS + 1):
            rate = RATE * min(1, (STEPS - step + 1) / DECAY)
            for group in optimizer.param_groups:
                group["lr"] = rate
            loss = losses(model, draw(text, 64, data)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            monitor.step(step, lr=rate, tokens=64 * step, loss=loss)
        monitor.finish(60)  # measures the last step
        newest = monitor.latest()
    if newest is None:
        sys.exit(f"nothing was measured: {monitor.failure}")
    for quantizer in newest["quantization"]:
        print(f"{quantizer['method']}{quantizer['bits']}: E = {100 * quantizer['error_ratio']:.2f} %")
    print(newest["verdict"]["state"], newest["verdict"].get("summary", ""))


if __name__ == "__main__":
    main(*sys.argv[1:2] or ["runs/minimal"])
