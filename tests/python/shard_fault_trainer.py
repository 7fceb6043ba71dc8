"""A rank of a training run for test_shard_faults.py, as a program: FOLDER RANK JSON.

JSON has `ranks`, `store`, `run_dir`, `steps`, `every`, and
    first      the first step that is watched; those before it are made again, as by a run that is resumed
    layout     as of sharded_trainer.py; "plain": one process
    alone      steps from one to another, at which no rank waits for another
    pauses     [[rank, step], ...]: having called monitor.step, makes FOLDER/at-RANK-STEP and waits for FOLDER/go-RANK-STEP
    signals    [[rank, step, number], ...]: before monitor.step, the rank sends itself a signal
    memory     [rank, bytes]: the most that the rank can share
    finish     seconds for the last step
    early      [seconds, step, ...]: calls monitor.finish at these steps, too
    worker     as of ptqwatch.watch, and `serve`

Prints a line of JSON: what the monitor said at the end, and how long that took.
"""

import json
import os
import pathlib
import resource
import sys
import time

import torch
import torch.distributed as dist

import ptqwatch
import sharded_trainer
import tiny


def pause(folder, rank, step):
    (folder / f"at-{rank}-{step}").touch()
    while not (folder / f"go-{rank}-{step}").exists():
        time.sleep(0.005)


def seconds_of(call, *arguments):
    began = time.monotonic()
    result = call(*arguments)
    return result, time.monotonic() - began


def main():
    folder, rank, options = pathlib.Path(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3])
    dist.init_process_group("gloo", init_method=f"file://{options['store']}", rank=rank, world_size=options["ranks"])
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = sharded_trainer.shard(sharded_trainer.make_model(), options["layout"])
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=2.0**-7, weight_decay=0, betas=(0.5, 0.5))

    def update(step):
        sharded_trainer.set_gradients(parameters, step)
        optimizer.step()
        optimizer.zero_grad()

    for step in range(1, options["first"]):
        update(step)
    if options["memory"] and options["memory"][0] == rank:
        resource.setrlimit(resource.RLIMIT_FSIZE, (options["memory"][1], resource.RLIM_INFINITY))
    monitor, started = seconds_of(lambda: ptqwatch.watch(
        model, losses="sharded_trainer:losses", probe=tiny.probe_batches(), build="sharded_trainer:make_model", every=options["every"],
        run_dir=options["run_dir"], quantizers="rtn3,gptq4", optimizer=optimizer, max_overhead=1.0, adapt_plan=False, run_id="run", worker=options["worker"], serve=options["serve"],
        ranks_from_environment=options["layout"] != "plain"))
    refused = monitor.failure
    begin, end = options["alone"]
    slowest, early, early_seconds = 0.0, None, None
    for step in range(options["first"], options["steps"] + 1):
        update(step)
        for number in (number for *place, number in options["signals"] if place == [rank, step]):
            os.kill(os.getpid(), number)
        slowest = max(slowest, seconds_of(monitor.step, step, 2.0**-7)[1])
        if step in options["early"][1:]:
            early, early_seconds = seconds_of(monitor.finish, options["early"][0])
        if [rank, step] in options["pauses"]:
            pause(folder, rank, step)
        if not begin <= step < end:
            dist.barrier()
    finished, finish_seconds = seconds_of(monitor.finish, options["finish"])
    report = monitor.latest()
    stopped, stop_seconds = seconds_of(monitor.stop)
    print(json.dumps({"failure": refused, "start_seconds": started, "slowest": slowest, "early": early, "early_seconds": early_seconds,
                      "finished": finished, "finish_seconds": finish_seconds, "stopped": stopped, "stop_seconds": stop_seconds, "report": report}))
    sys.stdout.flush()
    os._exit(0)  # gloo's threads


if __name__ == "__main__":
    main()
