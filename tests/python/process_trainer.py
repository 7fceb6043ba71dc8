"""A trainer for test_process.py: trains Net, and prints what the test asks for as JSON lines.

process_trainer.py STEPS [--mode process|thread|off] [--every N] [--run-dir DIR] [--losses NAME] [--pause STEP,...]
                   [--worker JSON] [--loaders] [--main] [--no-build] [--wait-for-reports] [--finish SECONDS]
                   [--trouble KIND@STEP,...] [--optimizer]

After each STEP of --pause it says so and waits for a line.
"""

import argparse
import hashlib
import json
import os
import sys
import time

import torch

import process_model


class MainNet(process_model.Net):
    """A class that the worker finds in this script."""


def main_losses(model, batch):
    return process_model.token_losses(model, batch)


def say(**fields):
    print(json.dumps(fields), flush=True)


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return index


def train(args):
    torch.manual_seed(3)
    model = MainNet() if args.main else process_model.Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    data = process_model.batches(16, seed=7)
    monitor = None
    if args.mode != "off":
        import ptqwatch

        build = None if args.no_build else (MainNet if args.main else "process_model:make_net")
        losses = main_losses if args.main else f"process_model:{args.losses}"
        options = {"worker": json.loads(args.worker)} if args.mode == "process" else {}
        if args.optimizer:
            options["optimizer"] = optimizer
        monitor = ptqwatch.watch(
            model, build=build, losses=losses, probe=process_model.batches(2, seed=8), every=args.every, mode=args.mode,
            run_dir=args.run_dir, quantizers="rtn3,gptq4", adapt_plan=False, duty_cycle=1.0, run_id="run", **options)
        say(failure=monitor.failure)
        if args.mode == "process" and not monitor.failure:
            say(worker=monitor.status()["process"]["process"])
    troubles = {int(step): kind for kind, _, step in (entry.partition("@") for entry in args.trouble.split(",") if entry)}
    pauses = [int(step) for step in args.pause.split(",") if step]
    loaders = [iter(torch.utils.data.DataLoader(Numbers(), num_workers=1, multiprocessing_context=context,
                                                generator=torch.Generator()))
               for context in ("fork", "spawn") if args.loaders]
    for step in range(1, args.steps + 1):
        for loader in loaders:
            next(loader, None)
        optimizer.zero_grad()
        process_model.token_losses(model, data[step % len(data)]).mean().backward()
        optimizer.step()
        if step in troubles:
            with open(os.environ["PTQWATCH_TROUBLE"], "w") as file:
                file.write(troubles[step])
        if monitor is not None:
            monitor.step(step, 1e-2, tokens=96 * step)
        if step in pauses:
            say(at=step)
            sys.stdin.readline()
        if args.wait_for_reports and step % args.every == 0:
            wait_for(monitor, step)
    digest = hashlib.sha256(b"".join(value.detach().numpy().tobytes() for value in model.state_dict().values()))
    say(weights=digest.hexdigest(), step=args.steps)
    if monitor is not None:
        if args.finish:
            say(finished=monitor.finish(args.finish))
        say(latest=monitor.latest())
        status = monitor.status()
        say(status={key: value for key, value in status.items()})
        say(stopped=monitor.stop(20))


def wait_for(monitor, step):
    until = time.monotonic() + 60
    while (monitor.latest() or {"step": 0})["step"] != step and time.monotonic() < until:
        time.sleep(0.01)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("steps", type=int)
    parser.add_argument("--mode", default="process")
    parser.add_argument("--every", type=int, default=20)
    parser.add_argument("--run-dir")
    parser.add_argument("--losses", default="token_losses")
    parser.add_argument("--pause", default="")
    parser.add_argument("--optimizer", action="store_true")
    parser.add_argument("--worker", default='{"first_pause": 0.05}')
    parser.add_argument("--loaders", action="store_true")
    parser.add_argument("--main", action="store_true")
    parser.add_argument("--no-build", action="store_true")
    parser.add_argument("--wait-for-reports", action="store_true")
    parser.add_argument("--finish", type=float, default=60)
    parser.add_argument("--trouble", default="")
    train(parser.parse_args())


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    main()
