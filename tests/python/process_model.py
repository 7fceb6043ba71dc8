"""A small language model, and losses functions that misbehave. Imported by trainers and by their workers."""

import os
import resource
import sys
import time

import torch


class Net(torch.nn.Module):
    """An embedding, two layers and a tied head."""

    def __init__(self, vocabulary=32, width=16):
        super().__init__()
        self.embed = torch.nn.Embedding(vocabulary, width)
        self.hidden = torch.nn.Linear(width, 4 * width)
        self.out = torch.nn.Linear(4 * width, width)
        self.head = torch.nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("scale", torch.ones(width))

    def forward(self, tokens):
        x = self.embed(tokens)
        return self.head(x + self.out(torch.tanh(self.hidden(x * self.scale))))


def make_net():
    return Net()


def token_losses(model, batch):
    tokens, targets = batch
    return torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), targets.flatten(), reduction="none").view(targets.shape)


def batches(count, seed, size=8, length=12):
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(32, (count, size, length + 1), generator=generator)
    return [(tokens[:, :-1], (3 * tokens[:, :-1] + 1) % 32) for tokens in drawn]


def train_step(replica, step):
    """A step of a cooldown."""
    optimizer = torch.optim.SGD(replica.parameters(), lr=step.learning_rate)
    token_losses(replica, batches(1, seed=step.batch % (1 << 30))[0]).mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def trouble_after_start(kind):
    """What happens at the first snapshot, that is while training goes on. In the file PTQWATCH_TROUBLE; empty: nothing, which is
    also so while the monitor is created.
    """
    path = os.environ["PTQWATCH_TROUBLE"]
    with open(path) as file:
        return file.read() == kind


def troubled_losses(model, batch):
    if trouble_after_start("raise"):
        raise ValueError("no losses today")
    if trouble_after_start("sys.exit"):
        sys.exit(3)
    if trouble_after_start("os._exit"):
        os._exit(9)
    if trouble_after_start("loop"):
        open(os.environ["PTQWATCH_TROUBLE"] + ".met", "w").close()
        while True:
            time.sleep(0.01)
    if trouble_after_start("memory"):
        resource.setrlimit(resource.RLIMIT_DATA, (4 << 30, resource.RLIM_INFINITY))
        torch.ones(10 << 30, dtype=torch.uint8)
    return token_losses(model, batch)
