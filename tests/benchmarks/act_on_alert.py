#!/usr/bin/env python3
"""What acting on an alarm is worth: the run of char_gpt with three seeds, its end after each way to act.

    tests/benchmarks/act_on_alert.py [--seeds 0 1 2] [--acts ignore stop average] ACT_ON_ALERT [FLAGS OF act_on_alert]

Prints a Markdown table: for each seed and act the step of the alarm, the loss on held-out text, and that of the model at 3 bits
(GPTQ), then the means over the seeds. Every run has the same data; training waits for each snapshot, so that the rows repeat.
About three minutes a run on an idle core.
"""

import argparse
import re
import statistics
import subprocess
import sys

FIXED = ["--wait", "on", "--http", "off", "--grpc", "off", "--methods", "gptq", "--bits", "3,4"]
HEADER = ("seed", "act", "alarm", "loss", "loss at 3 bits", "training seconds")


def line(output, pattern):
    found = re.search(rf"^{pattern}$", output, re.MULTILINE)
    if found is None:
        raise SystemExit(f"no line '{pattern}':\n{output}")
    return found[1]


def run(binary, seed, act, flags):
    command = [binary, *FIXED, *flags, "--seed", str(seed), "--act", act]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"exit code {done.returncode}: {' '.join(command)}\n{done.stdout}")
    return (line(done.stdout, r"alarm (?:step )?(\S+)"), float(line(done.stdout, r"validation loss (\S+)")),
            float(line(done.stdout, r"quantized loss 3 bits (\S+)")), float(line(done.stdout, r"training seconds (\S+)")))


def row(cells):
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--acts", nargs="+", default=["ignore", "stop", "average"], choices=["ignore", "stop", "average"])
    parser.add_argument("binary", metavar="ACT_ON_ALERT")
    arguments, flags = parser.parse_known_args()

    row(HEADER)
    row(["---"] * len(HEADER))
    results = {act: [] for act in arguments.acts}
    for seed in arguments.seeds:
        for act in arguments.acts:
            alarm, loss, quantized, seconds = run(arguments.binary, seed, act, flags)
            results[act].append((loss, quantized))
            row((seed, act, alarm, f"{loss:.4f}", f"{quantized:.4f}", f"{seconds:.0f}"))
    for act, losses in results.items():
        means = [statistics.mean(column) for column in zip(*losses)]
        row(("mean", act, "", f"{means[0]:.4f}", f"{means[1]:.4f}", ""))


if __name__ == "__main__":
    sys.exit(main())
