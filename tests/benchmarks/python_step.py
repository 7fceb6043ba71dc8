#!/usr/bin/env python3
"""How long Monitor.step takes without a due snapshot, in thread mode, beside an empty callback:   python_step.py [REPEATS]

Prints the median of REPEATS runs of 100,000 calls, in nanoseconds, and the quickest run."""

import statistics
import sys
import timeit

import torch

import ptqwatch


class Empty:
    def step(self, step, lr, tokens=None, loss=None):
        pass


def losses(model, batch):
    return torch.nn.functional.cross_entropy(model(batch[0]), batch[1], reduction="none")


def main(repeats):
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    monitor = ptqwatch.watch(model, losses=losses, probe=[(torch.randn(64, 16), torch.randint(4, (64,)))], mode="thread",
                             every=1 << 40, schedule={"decay_density": 1}, on_failure="error")
    values = {"loss": 2.5, "tensor": torch.tensor(2.5)}
    calls = {
        "step, lr": "f(1, 1e-3)",
        "step, lr, tokens": "f(1, 1e-3, 4096)",
        "step, lr=, tokens=": "f(1, lr=1e-3, tokens=4096)",
        "all, loss a float": "f(1, lr=1e-3, tokens=4096, loss=loss)",
        "all, loss a tensor": "f(1, lr=1e-3, tokens=4096, loss=tensor)",
    }
    print(f"{'arguments':24} {'empty':>12} {'monitor':>12} {'quickest':>9}   ns a call")
    for name, call in calls.items():
        row = []
        for function in (Empty().step, monitor.step):
            timer = timeit.Timer(call, globals={"f": function, **values})
            row.append(sorted(1e9 * timer.timeit(100_000) / 100_000 for _ in range(repeats)))
        print(f"{name:24} {statistics.median(row[0]):12.0f} {statistics.median(row[1]):12.0f} {row[1][0]:9.0f}")
    monitor.stop()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 9)
