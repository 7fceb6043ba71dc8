#!/usr/bin/env python3
"""What the monitor costs a training run: steps a second with it on against off.

    tests/benchmarks/overhead.py [--pairs N] [--steps N] [--every N] [--threads N] [--limit PERCENT] BIN

BIN is the example trainer char_gpt. Each run is a process of its own. Runs alternate as off on, on off, off on, ... so that a
machine that gets slower or faster meanwhile favours neither. Counted is what the trainer calls "training seconds": the loop
alone, with the calls of the monitor in it. The numbers mean something only on a machine that does nothing else: the load average
should stay near 1 (with --threads 1). Exit code 1 when the runs end with different weights, when a run with the monitor
measures nothing, or when the median slowdown exceeds --limit.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys


def run(args, monitor):
    """(training seconds, weights hash, snapshots measured) of one run."""
    command = [args.binary, "--monitor", monitor, "--steps", str(args.steps), "--every", str(args.every),
               "--threads", str(args.threads), "--http", "127.0.0.1:0"]
    done = subprocess.run(command, capture_output=True, text=True)
    seconds = re.search(r"^training seconds (\S+)$", done.stdout, re.MULTILINE)
    weights = re.search(r"^weights sha256 (\S+)$", done.stdout, re.MULTILINE)
    if done.returncode != 0 or seconds is None or weights is None:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    snapshots = len(re.findall(r"^snapshot step ", done.stdout, re.MULTILINE))
    return float(seconds[1]), weights[1], snapshots


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pairs", type=int, default=5, help="runs with the monitor, and as many without (%(default)s)")
    parser.add_argument("--steps", type=int, default=4000, help="optimizer steps a run (%(default)s)")
    parser.add_argument("--every", type=int, default=256, help="steps between snapshots (%(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="threads the trainer computes with (%(default)s)")
    parser.add_argument("--limit", type=float, help="fail when the median slowdown is above this, in percent")
    parser.add_argument("binary", metavar="BIN", help="char_gpt")
    args = parser.parse_args()
    if min(args.pairs, args.steps, args.every, args.threads) < 1:
        parser.error("--pairs, --steps, --every and --threads must be positive")

    print(f"{args.pairs} pairs of {args.steps} steps, a snapshot every {args.every}, {args.threads} training threads")
    ratios, hashes, unmeasured = [], set(), 0
    for pair in range(1, args.pairs + 1):
        results = {}
        for monitor in ("off", "on") if pair % 2 else ("on", "off"):
            results[monitor] = run(args, monitor)
            hashes.add(results[monitor][1])
        snapshots = results["on"][2]
        unmeasured += snapshots == 0
        ratios.append(results["on"][0] / results["off"][0])
        off, on = (args.steps / results[monitor][0] for monitor in ("off", "on"))
        print(f"pair {pair}: off {off:.1f} steps/s, on {on:.1f} steps/s, time ratio {ratios[-1]:.4f}, "
              f"{snapshots} snapshots measured, load average {os.getloadavg()[0]:.2f}", flush=True)

    slowdown = 100 * (statistics.median(ratios) - 1)
    print(f"time ratio on/off: median {statistics.median(ratios):.4f}, min {min(ratios):.4f}, max {max(ratios):.4f} "
          f"(median slowdown {slowdown:+.2f} %)")
    print(f"weights: {'bit-identical in all runs' if len(hashes) == 1 else f'DIFFER, {len(hashes)} hashes'}")
    failed = len(hashes) != 1 or unmeasured > 0
    if unmeasured:
        print(f"{unmeasured} runs with the monitor measured nothing")
    if args.limit is not None and slowdown > args.limit:
        print(f"the median slowdown is above the limit of {args.limit:g} %")
        failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
