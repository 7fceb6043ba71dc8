"""A nanoGPT-style loop with ptqwatch beside it: a GPT on the characters of a text, constant rate, then a linear decay.

    python examples/python/nanogpt.py --text FILE [--run-dir DIR] [--serve] [--compile] [--device cuda]

Lines that a trainer of your own needs are marked with "ptqwatch". Without --text it trains on the documents of this repository."""

import argparse
import pathlib

import torch
from torch import nn

import ptqwatch


VOCABULARY, LENGTH, WIDTH, LAYERS, HEADS = 256, 64, 64, 3, 4


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention_norm, self.mlp_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.projection = nn.Linear(WIDTH, WIDTH, bias=False)
        self.up = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.down = nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x):
        batch, time, width = x.shape
        q, k, v = self.qkv(self.attention_norm(x)).view(batch, time, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.projection(mixed.transpose(1, 2).reshape(batch, time, width))
        return x + self.down(nn.functional.gelu(self.up(self.mlp_norm(x))))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(*[Block() for _ in range(LAYERS)])
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, x):
        h = self.tokens(x) + self.positions.weight[:x.shape[1]]
        return self.head(self.norm(self.blocks(h)))


def token_losses(model, batch):
    """Nats of each token, [sequences, time]. The monitor imports and calls it."""
    x, y = batch
    return nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction="none").view_as(y)


def read_tokens(path):
    folder = pathlib.Path(__file__).resolve().parents[2] / "docs"
    text = pathlib.Path(path).read_bytes() if path else b"".join(page.read_bytes() for page in sorted(folder.glob("*.md")))
    return torch.tensor(list(text))


class Batches:
    def __init__(self, tokens, seed, device):
        self.tokens, self.device = tokens, device
        self.generator = torch.Generator().manual_seed(seed)

    def draw(self, count):
        starts = torch.randint(len(self.tokens) - LENGTH, (count,), generator=self.generator)
        windows = self.tokens[starts[:, None] + torch.arange(LENGTH + 1)].to(self.device)
        return windows[:, :-1], windows[:, 1:]


def learning_rate(step, args):
    return args.rate * min(1, step / args.warmup, (args.steps - step + 1) / args.decay)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", help="a file; its bytes are the tokens")
    parser.add_argument("--run-dir", default="runs/nanogpt")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--warmup", type=int, default=100)
    parser.add_argument("--decay", type=int, default=500, help="steps of the decay at the end")
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--every", type=int, default=200, help="steps between snapshots")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--serve", action="store_true", help="/metrics, gRPC and the live page beside the run")
    args = parser.parse_args()

    torch.manual_seed(0)
    if args.device == "cpu":
        torch.set_num_threads(1)  # leaves a core to the monitor
    tokens = read_tokens(args.text)
    split = len(tokens) * 9 // 10
    train, held_out = Batches(tokens[:split], 1, args.device), Batches(tokens[split:], 2, args.device)
    model = Gpt().to(args.device)
    step_model = torch.compile(model) if args.compile else model
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.1, betas=(0.9, 0.95))

    probe = [held_out.draw(16) for _ in range(16)]
    monitor = ptqwatch.watch(model, build=Gpt, losses=token_losses, probe=probe, every=args.every, run_dir=args.run_dir,
                             serve=args.serve)  # ptqwatch
    print(monitor.describe())
    for step in range(1, args.steps + 1):
        rate = learning_rate(step, args)
        for group in optimizer.param_groups:
            group["lr"] = rate
        loss = token_losses(step_model, train.draw(args.batch)).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        monitor.step(step, lr=rate, tokens=step * args.batch * LENGTH, loss=loss)  # ptqwatch
        if step % args.every == 0:
            newest = monitor.latest()
            state = newest["verdict"]["state"] if newest else "no report yet"
            print(f"step {step} rate {rate:.2e} loss {loss.item():.3f} {state}", flush=True)
    monitor.finish(120)  # ptqwatch
    print(monitor.latest()["verdict"] if monitor.latest() else f"nothing was measured: {monitor.failure}")
    monitor.stop()


if __name__ == "__main__":
    main()
