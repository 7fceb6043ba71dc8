#!/usr/bin/env python3
"""Measures the checkpoints of Hugging Face's Trainer while it trains: hf_trainer_test.py PTQWATCH [unittest arguments]

Exits with 77 ("skipped") if PyTorch, transformers or accelerate as installed by ./setup, or the King James text, are not there."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

import checkpoint_test

PTQWATCH = None
SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "hf_trainer.py")
# The rate is so high that E stays flat on the plateau.
STEPS, EVERY, DECAY = 6000, 150, 0.25
SETTINGS = ["--steps", str(STEPS), "--every", str(EVERY), "--decay", str(DECAY), "--rate", "3e-2", "--width", "48", "--layers", "2"]
ONSET = int(STEPS * (1 - DECAY))


def error_of(quantization):
    entry = next(entry for entry in quantization if (entry["method"], entry["bits"]) == ("gptq", 3))
    return entry["error_ratio"], entry["error_ratio_stderr"]


def mean(values):
    return sum(values) / len(values)


class Trainer(unittest.TestCase):
    def words(self, run_dir, *extra):
        return [PTQWATCH, "trajectory", "out", "--probe", "out/probe.bin", "--calibration", "out/calibration.bin", "--length", "64", "--run-dir", run_dir,
                "--quantizers", "gptq3,gptq4,rtn4", "--average", "5", "--no-curvature", "--threads", "1", *extra]

    def reports(self, run_dir):
        done = subprocess.run([PTQWATCH, "history", run_dir, "--json"], cwd=self.root, capture_output=True, text=True, timeout=60, check=True)
        return [{key: value for key, value in json.loads(line).items() if key != "cost"} for line in done.stdout.splitlines()]

    def test_sees_the_decay_and_ends_with_the_same_journal_after_kills(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        with open(self.root / "bible.txt", "wb") as text:
            subprocess.run(["bible", "-l79", "Gen1:1-Rev22:21"], stdout=text, timeout=60, check=True)
        log = self.root / "train.log"
        with open(log, "wb") as file:
            trainer = subprocess.Popen(
                [sys.executable, SCRIPT, "--text", "bible.txt", "--output", "out", *SETTINGS], cwd=self.root, stdout=file, stderr=file,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
        self.addCleanup(trainer.kill)
        while not (self.root / "out/calibration.bin").exists():
            self.assertIsNone(trainer.poll(), log.read_text())
            time.sleep(0.1)
        follow = subprocess.run(self.words("run", "--follow", "--until", str(STEPS)), cwd=self.root, capture_output=True, text=True, timeout=1500,
                                check=False)
        print(follow.stdout, file=sys.stderr)
        self.assertEqual(follow.returncode, 0, follow.stderr)
        self.assertEqual(trainer.wait(timeout=60), 0, log.read_text())
        reports = self.reports("run")
        self.assertEqual([report["step"] for report in reports], list(range(EVERY, STEPS + 1, EVERY)))
        self.check_decay(reports)
        self.check_kills(reports)

    def check_decay(self, reports):
        plateau = [report for report in reports if ONSET // 2 < report["step"] <= ONSET]
        decay = [report for report in reports if report["step"] > ONSET]
        self.assertEqual({report["lr_phase"] for report in plateau}, {"stable"})
        self.assertEqual({report["lr_phase"] for report in decay[1:]}, {"decay"})
        flat, errors = zip(*(error_of(report["quantization"]) for report in plateau))
        last, last_error = error_of(decay[-1]["quantization"])
        self.assertGreater(last, mean(flat) + 4 * (last_error + mean(errors)))
        self.assertGreater(last, max(flat))
        averaged, averaged_error = error_of(decay[-1]["averaging"][0]["quantization"])
        self.assertLess(averaged + averaged_error, last - last_error)
        states = {report["step"]: report["verdict"]["state"] for report in reports}
        self.assertNotIn("decay_degradation", [state for step, state in states.items() if step <= ONSET])
        self.assertEqual(states[STEPS], "decay_degradation")

    def check_kills(self, reports):
        """The same command, ended by SIGKILL again and again, ends with the same reports."""
        kills = 0
        while True:
            process = subprocess.Popen(self.words("killed"), cwd=self.root, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            begun = 0
            for line in process.stderr:
                begun += line.startswith("checkpoint ")
                if begun == 12:
                    break
            if begun == 12:
                process.kill()
                kills += 1
            process.stderr.close()
            code = process.wait(timeout=600)
            if begun < 12:
                self.assertEqual(code, 0)
                break
        self.assertGreater(kills, 1)
        self.assertEqual(self.reports("killed"), reports)


if __name__ == "__main__":
    PTQWATCH = sys.argv[1]
    checkpoint_test.import_compressed_tensors()
    try:
        import accelerate as _
    except ImportError as problem:
        print(f"skipped: {problem}; ./setup installs it")
        sys.exit(checkpoint_test.SKIPPED)
    if shutil.which("bible") is None:
        print("skipped: there is no program bible; ./setup installs bible-kjv")
        sys.exit(checkpoint_test.SKIPPED)
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
