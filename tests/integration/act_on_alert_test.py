#!/usr/bin/env python3
"""Tests act_on_alert as a program: act_on_alert_test.py ACT_ON_ALERT [unittest arguments]"""

import re
import subprocess
import sys
import unittest

from trainer import Trainer, weights

ACT_ON_ALERT = None
FLAGS = ["--steps", "60", "--every", "30", "--http", "off", "--grpc", "off", "--threads", "1", "--wait", "on"]


def run(*flags):
    with Trainer(ACT_ON_ALERT, *FLAGS, *flags) as trainer:
        return trainer.finish()


class ActOnAlert(unittest.TestCase):
    def test_prints_what_became_of_the_run(self):
        ends = set()
        for act in ("ignore", "stop", "average"):
            code, out, err = run("--act", act)
            self.assertEqual(code, 0, err)
            for line in (r"alarm none", r"validation loss \d\.\d{4}", r"quantized loss 3 bits \d\.\d{4}",
                         r"training seconds \d+\.\d+", r"weights sha256 [0-9a-f]{64}"):
                self.assertEqual(len(re.findall(rf"(?m)^{line}$", out)), 1, out)
            ends.add(weights(out))
        # Without an alarm, all of them are the same run.
        self.assertEqual(len(ends), 1)

    def test_runs_without_a_monitor(self):
        code, out, err = run("--monitor", "off")
        self.assertEqual(code, 0, err)
        self.assertRegex(out, r"(?m)^alarm none$")
        self.assertNotIn("snapshot", out)

    def test_refuses_what_makes_no_sense(self):
        for flags, says in ((["--act", "panic"], "--act"), (["--average-every", "0"], "--average-every"),
                            (["--average-window", "0"], "--average-window"), (["--steps", "0"], "--steps")):
            code, out, err = run(*flags)
            self.assertEqual((code, out), (2, ""))
            self.assertIn(says, err)
            self.assertEqual(len(err.splitlines()), 1, err)

    def test_has_the_flags_of_char_gpt(self):
        text = subprocess.run([ACT_ON_ALERT, "--help"], capture_output=True, text=True, check=True).stdout
        for flag in ("--act", "--average-every", "--average-window", "--decay-fraction", "--run-dir", "--wait", "--bits"):
            self.assertIn(flag, text)


if __name__ == "__main__":
    ACT_ON_ALERT = sys.argv.pop(1)
    unittest.main(verbosity=2)
