"""A model that trains within a second, its data, and its training loop."""

import torch
from torch import nn

VOCABULARY = 16
LENGTH = 8


class TinyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 32)
        self.up = nn.Linear(32, 64)
        self.down = nn.Linear(64, 32)
        self.norm = nn.LayerNorm(32)
        self.head = nn.Linear(32, VOCABULARY, bias=False)
        self.dropout = nn.Dropout(0.1)
        self.register_buffer("scale", torch.tensor(0.5))

    def forward(self, ids):
        h = self.embedding(ids)
        h = h + self.scale * self.down(torch.relu(self.up(self.dropout(self.norm(h)))))
        return self.head(h)


def make_model():
    return TinyModel()


def token_losses(model, batch):
    """[N, T] losses of the token that follows."""
    x, y = batch
    return nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction="none").view_as(y)


def draw(count, seed):
    """A batch of sequences in which a token follows from the one before it in half of the cases."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(VOCABULARY, (count, LENGTH + 1), generator=generator)
    follows = torch.rand(count, LENGTH, generator=generator) < 0.5
    for t in range(LENGTH):
        ids[:, t + 1] = torch.where(follows[:, t], (5 * ids[:, t] + 3) % VOCABULARY, ids[:, t + 1])
    return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()


def probe_batches():
    return [draw(16, 1000 + i) for i in range(2)]


def train(model, steps, monitor=None, wrapped=None):
    """Trains with random numbers of the default generator, as most trainers do, and returns the last loss."""
    called = model if wrapped is None else wrapped
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(1, steps + 1):
        start = int(torch.randint(1 << 30, ()))
        optimizer.zero_grad()
        loss = token_losses(called, draw(8, start)).mean()
        loss.backward()
        optimizer.step()
        if monitor is not None:
            monitor.step(step, 1e-2, tokens=step * 8 * LENGTH, loss=loss)
    return float(loss.detach())


def without_layers(record):
    """The report without its rows of layers, whose numbers have fewer digits in the journal."""
    if isinstance(record, list):
        return [without_layers(element) for element in record]
    if isinstance(record, dict):
        return {key: without_layers(value) for key, value in record.items() if key != "layers"}
    return record
