#!/usr/bin/env python3
"""What a monitor in a process of its own costs a Python trainer:   tests/benchmarks/python_process.py BUILD [--quick]

1. the step call without a due snapshot, beside a callback that does nothing
2. a due snapshot of 30 million parameters, beside a copy of the same bytes
3. the throughput of a loop of 20 ms steps while the monitor's process works, beside the same loop while it is stopped

Prints one line each, with 95 % intervals over pairs that alternate. Takes five minutes on a machine that is otherwise idle; with
--quick half a minute.
"""

import argparse
import os
import pathlib
import signal
import statistics
import sys
import time

if __name__ == "__main__":
    import peers

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", metavar="BUILD", help="a build with the Python package, e.g. build/release")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    arguments = parser.parse_args()
    peers.use(build=arguments.build)
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))

import process_model
import torch

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
    monitor.stop()
    print(f"step call: {1e6 * statistics.median(seconds[True]):.2f} us, a callback that does nothing: "
          f"{1e6 * statistics.median(seconds[False]):.2f} us")


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


class Layers(torch.nn.Sequential):
    """2 million parameters, trained by `throughput`."""

    def __init__(self):
        super().__init__(*[layer for _ in range(8) for layer in (torch.nn.Linear(512, 512), torch.nn.ReLU())])


def distances(model, batch):
    """Losses [N]."""
    inputs, targets = batch
    return (model(inputs) - targets).square().mean(1)


def cpu_of(process):
    """CPU seconds of a process so far."""
    fields = pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Loop:
    """A training loop of 20 ms steps, with a monitor that always has a snapshot to measure."""

    def __init__(self):
        self.model = Layers()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        self.batch = torch.randn(96, 512), torch.randn(96, 512)
        begin = time.perf_counter()
        for _ in range(20):
            self.train()
        self.passes = max(1, round(0.02 / ((time.perf_counter() - begin) / 20)))
        self.every = 1 << 20
        self.step = 0
        probe = [(torch.randn(64, 512), torch.randn(64, 512)) for _ in range(4)]
        self.monitor = ptqwatch.watch(self.model, build=Layers, losses=distances, probe=probe, every=self.every, on_failure="error",
                                      max_overhead=1.0)
        self.worker = self.monitor.status()["process"]["process"]

    def train(self):
        self.optimizer.zero_grad()
        distances(self.model, self.batch).mean().backward()
        self.optimizer.step()

    def block(self, steps, works):
        """(seconds, CPU seconds of this process) of a step, while the worker works or is stopped. Snapshots are due only while it
        works: the numbers of the steps decide that."""
        os.kill(self.worker, signal.SIGCONT if works else signal.SIGSTOP)
        begin, cpu = time.perf_counter(), time.process_time()
        for place in range(steps):
            for _ in range(self.passes):
                self.train()
            due = works and place % 10 == 2
            self.step = (self.step // self.every + 1) * self.every if due else self.step + 1
            self.monitor.step(self.step, 1e-3)
        return (time.perf_counter() - begin) / steps, (time.process_time() - cpu) / steps


def throughput(pairs, steps):
    """Blocks of steps with and without the worker, in turn: on, off, off, on, ... A pair is two that follow each other."""
    loop = Loop()
    for works in (True, False):
        loop.block(steps, works)
    wall, cpu, works_for, worked = [], [], 0, cpu_of(loop.worker)
    for pair in range(pairs):
        times = {}
        for works in (pair % 2 == 0, pair % 2 == 1):
            times[works] = loop.block(steps, works)
        wall.append(times[False][0] / times[True][0])
        cpu.append(times[True][1] / times[False][1])
        works_for += steps * times[True][0]
    worked = cpu_of(loop.worker) - worked
    os.kill(loop.worker, signal.SIGCONT)
    reports = loop.monitor.latest() or {"sequence": 0}
    loop.monitor.stop(10)
    print(f"throughput with a monitor: {interval(wall)[0]:.4f} +- {interval(wall)[1]:.4f} times that without, median "
          f"{statistics.median(wall):.4f}; CPU time of a step {interval(cpu)[0]:.4f} +- {interval(cpu)[1]:.4f} times ({pairs} pairs of "
          f"{steps} steps of {1e3 * times[False][0]:.0f} ms; the worker used {100 * worked / works_for:.0f} % of a core and reported "
          f"{reports['sequence']} snapshots)")


def main(quick):
    step_call(10 if quick else 100)
    due_snapshot(5 if quick else 30)
    throughput(*((10, 10) if quick else (200, 25)))


if __name__ == "__main__":
    main(arguments.quick)
