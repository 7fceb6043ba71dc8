#!/usr/bin/env python3
"""The disk of a run directory fills up, hangs, fails or disappears: training gives the same bits.

usage: disk_test.py RUN_TRAINER FAULTY_DISK [unittest arguments]
"""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))
from beside import eventually  # noqa: E402
from trainer import Trainer, journal, weights  # noqa: E402

RUN_TRAINER = FAULTY_DISK = None
STEPS = ["--steps", "3000", "--reports", "20"]


def unwatched(*flags):
    done = subprocess.run([RUN_TRAINER, *flags, "--monitor", "off"], text=True, capture_output=True, timeout=120, check=True)
    return done.stdout


class GivesOut(unittest.TestCase):
    """Places faulty_disk between the trainer and its run directory, and changes its mode while the trainer runs."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.run_dir = os.path.join(folder.name, "run")
        self.mode = os.path.join(folder.name, "mode")
        self.set_mode("-")

    def set_mode(self, letter):
        with open(self.mode, "r+" if os.path.exists(self.mode) else "w", encoding="ascii") as file:
            file.write(letter)

    def start(self, *flags):
        env = {"LD_PRELOAD": FAULTY_DISK, "FAULTY_DISK": self.run_dir, "FAULTY_DISK_MODE": self.mode}
        return Trainer(RUN_TRAINER, "--run-dir", self.run_dir, *flags, short=False, env=env)

    def change(self, trainer, how):
        """Calls how() while the trainer stands still, before its last reports."""
        state = pathlib.Path(f"/proc/{trainer.process.pid}/stat")
        eventually(lambda: state.read_text(encoding="ascii").split()[2] == "T", "it has five reports")
        how()
        trainer.process.send_signal(signal.SIGCONT)

    def trains_on(self, letter):
        with self.start(*STEPS, "--stop-at-report", "5") as trainer:
            self.change(trainer, lambda: self.set_mode(letter))
            code, out, err = trainer.finish(timeout=60)
        self.assertEqual(code, 0, err)
        self.assertEqual(weights(out), weights(unwatched(*STEPS)))
        return out, err

    def test_full(self):
        _, err = self.trains_on("f")
        self.assertIn("No space left on device", err)

    def test_read_only(self):
        _, err = self.trains_on("r")
        self.assertIn("Read-only file system", err)

    def test_errors_of_the_device(self):
        _, err = self.trains_on("e")
        self.assertIn("Input/output error", err)

    def test_hangs(self):
        started = time.monotonic()
        self.trains_on("h")
        self.assertLess(time.monotonic() - started, 40)

    def test_hangs_and_comes_back(self):
        with self.start("--every", "100", "--linger", "on") as trainer:
            trainer.wait_for(r"^report 5$")
            self.set_mode("h")
            time.sleep(0.2)
            self.set_mode("-")
            trainer.process.terminate()
            code, out, err = trainer.finish(timeout=60)
        self.assertEqual(code, 143, err)
        reports, _, bad = journal(self.run_dir)
        self.assertEqual(bad, 0)
        printed = [int(number) for number in re.findall(r"^report (\d+)$", out, re.MULTILINE)]
        self.assertEqual([report["sequence"] for report in reports], printed, "nothing is lost")

    def test_run_directory_is_removed(self):
        with self.start(*STEPS, "--stop-at-report", "5") as trainer:
            self.change(trainer, lambda: shutil.rmtree(self.run_dir))
            code, out, err = trainer.finish(timeout=60)
        self.assertEqual(code, 0, err)
        self.assertEqual(weights(out), weights(unwatched(*STEPS)))


# Runs in its own mount namespace: the disk has 8 MB and disappears with the process.
IN_NAMESPACE = 'mount -t tmpfs -o size=8m ptqwatch "$1" && mkdir "$1/run" && shift && exec "$@"'


class NearlyFull(unittest.TestCase):
    """A disk with just enough room for the trainer's own checkpoints."""

    def run_on_small_disk(self, *flags):
        with tempfile.TemporaryDirectory() as disk:
            command = ["unshare", "--mount", "sh", "-c", IN_NAMESPACE, "sh", disk, RUN_TRAINER, "--checkpoints", disk,
                       "--checkpoint-steps", "10", "--steps", "200", "--run-dir", f"{disk}/run", *flags]
            done = subprocess.run(command, text=True, capture_output=True, timeout=120, check=False)
            if "mount:" in done.stderr or "unshare" in done.stderr:
                self.skipTest(f"a file system cannot be mounted here: {done.stderr.strip()}")
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def check(self, *flags):
        watched = self.run_on_small_disk(*flags)
        alone = self.run_on_small_disk(*flags, "--monitor", "off")
        self.assertEqual(weights(watched), weights(alone))
        for output in (watched, alone):
            written, failed = re.search(r"^checkpoints (\d+) failed (\d+)$", output, re.MULTILINE).groups()
            self.assertGreaterEqual(int(written), 5)
            self.assertEqual(int(failed), 0, output)
        self.assertIn("report ", watched)

    def test_a_state_that_would_not_leave_room_for_a_checkpoint(self):
        self.check("--size", "640", "--checkpoint-mb", "3", "--reports", "2")

    def test_a_small_state_and_large_checkpoints(self):
        self.check("--size", "192", "--checkpoint-mb", "3", "--reports", "3")


if __name__ == "__main__":
    RUN_TRAINER, FAULTY_DISK = sys.argv[1:3]
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
