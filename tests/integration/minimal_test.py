#!/usr/bin/env python3
"""Tests the program in the README, or the one that measures in another process: minimal_test.py PROGRAM [unittest arguments]"""

import os
import sys
import tempfile
import unittest

from trainer import Trainer, journal

PROGRAM = None


class Minimal(unittest.TestCase):
    def test_keeps_a_journal_and_says_what_quantization_costs(self):
        with tempfile.TemporaryDirectory() as folder:
            for attempt in (1, 2):  # the second goes on in the directory of the first
                with self.subTest(attempt=attempt):
                    self.check(folder, attempt)

    def check(self, folder, attempt):
        with Trainer(PROGRAM, short=False, cwd=folder) as trainer:
            code, out, err = trainer.finish(timeout=100)
        reports, _, bad = journal(os.path.join(folder, "runs", os.path.basename(PROGRAM)))
        self.assertEqual(code, 0, err)
        self.assertEqual(reports[-1]["attempt"], attempt)
        # On a busy machine it reports skipped snapshots, and nothing else.
        rest = [line for line in err.splitlines()
                if "no core is spare" not in line and "due snapshots" not in line and "snapshots that are due" not in line]
        self.assertEqual(rest, [])
        self.assertEqual((reports[-1]["step"], bad), (2000, 0))
        self.assertRegex(out.splitlines()[-1], r"^3-bit GPTQ costs \S+ nats at step 2000\b")


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
