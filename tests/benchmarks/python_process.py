#!/usr/bin/env python3
"""What a monitor in a process of its own costs a Python trainer:   tests/benchmarks/python_process.py [--quick]

1. the step call without a due snapshot, beside a callback that does nothing
2. a due snapshot of 30 million parameters, beside a copy of the same bytes
3. the throughput of a loop of 20 ms steps with and without a monitor

With the PYTHONPATH of tests/python/run. Prints one line each, with 95 % intervals over pairs that alternate.
"""

import argparse
import pathlib
import statistics
import sys
import time

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
import process_model

import ptqwatch


def interval(values):
    """Mean and half of its 95 % interval."""
    return statistics.mean(values), 1.96 * statistics.stdev(values) / len(values) ** 0.5


def watch(model, every, **options):
    return ptqwatch.watch(model, build=None, losses="process_model:token_losses", probe=process_model.batches(1, 1), every=every,
                          quantizers="rtn4", curvature={"enabled": False}, on_failure="error", **options)


def nothing(step, lr, tokens=None, loss=None):
    pass


def step_call(repeats):
    monitor = watch(process_model.Net(), 10**9)
    calls = 5000  # fits the ring, so that no step is left out
    step, seconds = 0, {True: [], False: []}
    for _ in range(repeats):
        for own in (True, False):
            call = monitor.step if own else nothing
            begin = time.perf_counter()
            for _ in range(calls):
                step += 1
                call(step, 1e-3, 64, 0.5)
            seconds[own].append((time.perf_counter() - begin) / calls)
        time.sleep(0.15)
    ignored = monitor.status()["process"]["ignored"]
    monitor.stop()
    print(f"step call: {1e6 * statistics.median(seconds[True]):.2f} us, a callback that does nothing: "
          f"{1e6 * statistics.median(seconds[False]):.2f} us; {ignored} steps ignored")


class Large(torch.nn.Module):
    """30 million parameters that the loss hardly uses."""

    def __init__(self):
        super().__init__()
        self.net = process_model.Net()
        self.blocks = torch.nn.ParameterList([torch.zeros(1000, 1000) for _ in range(30)])

    def forward(self, tokens):
        return self.net(tokens)


def due_snapshot(repeats):
    model = Large()
    monitor = watch(model, 2, duty_cycle=1.0)
    source = torch.cat([value.detach().flatten() for value in model.parameters()])
    target = torch.zeros_like(source)
    step, ratios, copies = 0, [], []
    while len(ratios) < repeats:
        step += 2
        with torch.no_grad():
            model.blocks[0].add_(1e-6)  # weights that stand still are announced
        before = monitor.status()["snapshots"]
        begin = time.perf_counter()
        monitor.step(step, 1e-3)
        due = time.perf_counter() - begin
        begin = time.perf_counter()
        target.copy_(source)
        copy = time.perf_counter() - begin
        taken = lambda: monitor.status()["snapshots"]["taken"]
        until = time.perf_counter() + 0.5
        while taken() == before["taken"] and time.perf_counter() < until:
            time.sleep(0.02)
        if taken() == before["taken"]:
            continue  # the worker had not freed the slot
        ratios.append(due / copy)
        copies.append(copy)
    monitor.stop()
    mean, half = interval(ratios)
    print(f"due snapshot of {source.numel() / 1e6:.1f} M parameters: {mean:.2f} +- {half:.2f} times a copy of its bytes "
          f"({1e3 * statistics.median(copies):.1f} ms)")


def throughput(pairs, steps):
    torch.set_num_threads(1)
    model = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(8)])
    batch = torch.randn(96, 512)
    net = process_model.Net()

    def step():
        model(batch).square().mean().backward()

    begin = time.perf_counter()
    for _ in range(20):
        step()
    repeats = max(1, round(0.02 / ((time.perf_counter() - begin) / 20)))

    def loop(call):
        begin = time.perf_counter()
        for number in range(1, steps + 1):
            for _ in range(repeats):
                step()
            call(number)
        return steps / (time.perf_counter() - begin)

    ratios = []
    for _ in range(pairs):
        alone = loop(lambda number: None)
        monitor = watch(net, 10)
        ratios.append(loop(lambda number: monitor.step(number, 1e-3)) / alone)
        monitor.stop()
    mean, half = interval(ratios)
    print(f"throughput with a monitor: {mean:.3f} +- {half:.3f} times that without ({len(ratios)} pairs of {steps} steps of 20 ms)")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    quick = parser.parse_args().quick
    step_call(10 if quick else 100)
    due_snapshot(5 if quick else 30)
    throughput(3 if quick else 12, 50 if quick else 250)


if __name__ == "__main__":
    main()
