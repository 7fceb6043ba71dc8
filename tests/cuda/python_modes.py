#!/usr/bin/env python3
"""A GPT on a GPU, watched from Python in every mode: the same weights as without a monitor, and reports that agree.

  tests/cuda/python_modes.py [--device cuda] [--only MODE,...]      PYTHONPATH has the package ptqwatch

Prints a table, and exits with 1 if anything is wrong. Steps are eager but for `captured`, which replays a CUDA graph, and `fsdp`, which shards the
model over one rank."""

import argparse
import os
import pathlib
import statistics
import sys
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch  # noqa: E402

import ptqwatch  # noqa: E402

HERE = pathlib.Path(__file__).resolve()
sys.path[:0] = [str(HERE.parent), str(HERE.parents[2] / "examples" / "python")]
import nanogpt  # noqa: E402

STEPS, EVERY, BATCH = 200, 50, 32
MODES = {
    "alone": None,
    "process": {"mode": "process"},
    "process, cuda": {"mode": "process", "monitor_device": "cuda:0"},
    "thread, cpu": {"mode": "thread", "monitor_device": "cpu"},
    "thread, trainer": {"mode": "thread", "monitor_device": "trainer"},
    "beside": {"mode": "thread", "monitor_device": "trainer", "copy_beside_training": True},
    "captured": {"mode": "thread", "monitor_device": "trainer"},
    "fsdp": {"mode": "process"},
}


def batches(device):
    tokens = nanogpt.read_tokens(None)
    generator = torch.Generator().manual_seed(1)

    def draw(count):
        at = torch.randint(len(tokens) - nanogpt.LENGTH - 1, (count, 1), generator=generator) + torch.arange(nanogpt.LENGTH)
        return tokens[at], tokens[at + 1]

    return [tuple(part.to(device) for part in draw(BATCH)) for _ in range(STEPS)], [draw(64), draw(64)]


def shard(model):
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511", RANK="0", WORLD_SIZE="1")
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    for block in model.blocks:
        fully_shard(block)
    return fully_shard(model)


def run(name, options, device):
    torch.manual_seed(1)
    model = nanogpt.Gpt().to(device)
    if name == "fsdp":
        model = shard(model)
    training, probe = batches(device)
    captured = name == "captured"
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True, capturable=captured)
    x, y = (part.clone() for part in training[0])

    def update():
        optimizer.zero_grad(set_to_none=not captured)
        loss = nanogpt.token_losses(model, (x, y)).mean()
        loss.backward()
        if monitor is not None and options.get("copy_beside_training"):
            monitor.before_update()
        optimizer.step()
        return loss

    monitor = graph = None
    if options is not None:
        monitor = ptqwatch.watch(model, losses=nanogpt.token_losses, probe=probe, optimizer=optimizer, every=EVERY,
                                 build=None if options["mode"] == "thread" else nanogpt.Gpt, max_overhead=1, **options)
    if captured:
        state = {key: value.clone() for key, value in model.state_dict().items()}
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(3):
                update()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        monitor.step(EVERY, 1e-3)  # the first snapshot is measured while the step is captured
        with torch.cuda.graph(graph):
            loss = update()
        model.load_state_dict(state)
        for state in optimizer.state.values():
            for value in state.values():
                value.zero_()
    times = []
    for step, (inputs, targets) in enumerate(training, 1):
        begin = time.perf_counter()
        x.copy_(inputs), y.copy_(targets)
        loss = graph.replay() or loss if graph else update()
        loss.item()
        if monitor is not None:
            monitor.step(step, 1e-3)
        times.append(time.perf_counter() - begin)
    result = {"weights": [getattr(p, "_local_tensor", p).detach().cpu() for p in model.parameters()], "median": statistics.median(times[20:]), "longest": max(times[20:]),
              "finish": True}
    if monitor is not None:
        result["finish"] = monitor.finish(60)
        result["report"], result["status"], result["failure"] = monitor.latest(), monitor.status(), monitor.failure
        print(monitor.describe().split("\n")[0])
        monitor.stop()
    return result


def squares(model, batch):
    x, y = batch
    return (model(x) - y).square().mean(1)


def stalls(options, device):
    """Step times, beside snapshots of 336 MB, of a loop that waits for each loss."""
    torch.manual_seed(1)
    width = 2048
    model = torch.nn.Sequential(*[torch.nn.Linear(width, width, bias=False) for _ in range(20)]).to(device)
    x = torch.randn(256, width, device=device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    monitor = None
    if options is not None:
        build = None if options["mode"] == "thread" else "python_modes:wide"
        monitor = ptqwatch.watch(model, losses="python_modes:squares", probe=[(torch.randn(32, width), torch.randn(32, width))], build=build,
                                 every=100, quantizers="rtn4", curvature={"enabled": False}, **options)
    due, others = [], []
    for step in range(1, 401):
        begin = time.perf_counter()
        optimizer.zero_grad()
        loss = squares(model, (x, x)).mean()
        loss.backward()
        optimizer.step()
        loss.item()
        if monitor is not None:
            monitor.step(step, 1e-6)
        if step > 20:
            (due if step % 100 == 0 else others).append(time.perf_counter() - begin)
    reports = "-"
    if monitor is not None:
        reports = monitor.status()["reports_total"]
        monitor.stop()
    others.sort()
    return [statistics.median(others), others[int(0.99 * len(others))], others[-1], statistics.median(due), max(due)], reports


def wide():
    return torch.nn.Sequential(*[torch.nn.Linear(2048, 2048, bias=False) for _ in range(20)])


def print_stalls(device):
    print("\n| 84 million parameters | steps median us | 99 % | longest | steps with a snapshot, median | longest | reports |\n| --- | --- | --- | --- | --- | --- | --- |")
    for name in ("alone", "process", "process, cuda", "thread, cpu", "thread, trainer"):
        times, reports = stalls(MODES[name], device)
        print(f"| {name} | " + " | ".join(f"{1e6 * seconds:.0f}" for seconds in times) + f" | {reports} |", flush=True)


def facts_of(result):
    report = result.get("report")
    if not report:
        return result.get("failure") or "-"
    curvature = report.get("curvature") or {}
    losses = {f"{q['method']}{q['bits']}": q.get("delta_nats") for q in report["quantization"]}
    return (f"step {report['step']}, base {report['probe_loss_nats']:.5f}, " + ", ".join(f"{k} {v:+.4f}" if v is not None else f"{k} none" for k, v in losses.items())
            + f"; curvature {curvature.get('status')}, {curvature.get('mode')}, top {curvature.get('top_eigenvalue')}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--only", default=",".join(MODES).replace(", ", "+"), help="modes, with + for a comma and a blank")
    parser.add_argument("--stalls", action="store_true", help="also step times beside larger snapshots")
    options = parser.parse_args()
    torch.use_deterministic_algorithms(True, warn_only=True)
    alone, bad = None, []
    print("| mode | step median us | longest | reports | same weights | newest report |\n| --- | --- | --- | --- | --- | --- |")
    for name in options.only.split(","):
        name = name.replace("+", ", ")
        try:
            result = run(name, MODES[name], options.device)
        except Exception as error:  # the other modes are of interest, too
            print(f"| {name} | {type(error).__name__}: {error} |", flush=True)
            bad.append(name)
            continue
        alone = alone or result["weights"]
        same = all(torch.equal(a, b) for a, b in zip(alone, result["weights"])) if name != "captured" else None
        reports = result.get("status", {}).get("reports_total", "-")
        print(f"| {name} | {1e6 * result['median']:.0f} | {1e6 * result['longest']:.0f} | {reports} | {same} | {facts_of(result)} |", flush=True)
        if same is False or (MODES[name] and not (result["finish"] and result.get("report"))):
            bad.append(name)
    if options.stalls:
        print_stalls(options.device)
    print("wrong: " + ", ".join(bad) if bad else "all is well")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
