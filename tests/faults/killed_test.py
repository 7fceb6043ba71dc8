#!/usr/bin/env python3
"""A trainer is ended at random moments and resumed: no journalled line is lost, and no file is left behind.

usage: killed_test.py RUN_TRAINER [--kills N] [unittest arguments]
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))
from trainer import Trainer, journal  # noqa: E402

RUN_TRAINER = None
KILLS = 12


def whole_lines(run_dir):
    """The journal's bytes up to the end of its last whole line."""
    try:
        with open(os.path.join(run_dir, "journal.jsonl"), "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return b""
    return data[:data.rfind(b"\n") + 1]


def temporaries(run_dir):
    return [name for name in os.listdir(run_dir) if name.endswith(".tmp")]


class Killed(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.run_dir = os.path.join(folder.name, "run")
        self.left_behind = self.measured = 0

    def resume(self, *flags):
        return Trainer(RUN_TRAINER, "--run-dir", self.run_dir, "--steps", "1000000000", *flags, short=False)

    def end(self, trainer, which, moment):
        """Ends `trainer` at a moment that may lie in Create, in a measurement or in a write."""
        if moment is None:
            trainer.wait_for(r"^report ")
        else:
            time.sleep(moment)
        trainer.process.send_signal(which)
        code, out, err = trainer.finish(timeout=60)
        self.assertIn(code, (-which, 128 + which), err)
        self.measured += "report " in out

    def check(self, before):
        """Checks the journal of a run that has ended; it must begin with `before`."""
        self.assertTrue(whole_lines(self.run_dir).startswith(before), "what was journalled is still there")
        if not os.path.exists(os.path.join(self.run_dir, "journal.jsonl")):
            return
        reports, _, bad = journal(self.run_dir)
        self.assertLessEqual(bad, 1, "at most the last line is cut off")
        sequences = [report["sequence"] for report in reports]
        self.assertEqual(sequences, sorted(set(sequences)), "strictly increasing")
        attempts = [report["attempt"] for report in reports]
        self.assertEqual(attempts, sorted(attempts))
        self.assertLessEqual(len({report["run_id"] for report in reports}), 1)

    def test_resumes_after_each(self):
        chance = random.Random(1)
        started = time.monotonic()
        with self.resume() as first:
            first.wait_for(r"^report ")
            usual = time.monotonic() - started  # until there is a report
            first.process.kill()
            first.finish()
        for number in range(KILLS):
            before = whole_lines(self.run_dir)
            which = chance.choice((signal.SIGKILL, signal.SIGTERM))
            # One in four ends at the first report, however slow the machine is.
            moment = None if number % 4 == 0 else chance.uniform(0.3, 1.6) * usual
            with self.subTest(number=number, signal=which.name, moment=moment), self.resume() as trainer:
                self.end(trainer, which, moment)
                self.check(before)
            self.left_behind += len(temporaries(self.run_dir))
        before = whole_lines(self.run_dir)
        done = subprocess.run([RUN_TRAINER, "--run-dir", self.run_dir, "--steps", "100", "--reports", "3"], text=True,
                              capture_output=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.check(before)
        self.assertEqual(temporaries(self.run_dir), [])
        reports, events, bad = journal(self.run_dir)
        self.assertEqual(bad, 0)
        self.assertGreaterEqual(self.measured, KILLS // 4)
        self.assertIn("resumed", [event["kind"] for event in events])
        self.assertEqual([report["sequence"] for report in reports if report["attempt"] == reports[-1]["attempt"]][-1],
                         reports[-1]["sequence"])
        print(f"{KILLS} kills, {self.measured} after a report, {len(reports)} reports, "
              f"{self.left_behind} temporary files left behind and removed")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("run_trainer")
    parser.add_argument("--kills", type=int, default=KILLS)
    arguments, rest = parser.parse_known_args()
    RUN_TRAINER, KILLS = arguments.run_trainer, arguments.kills
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
