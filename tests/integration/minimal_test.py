#!/usr/bin/env python3
"""The program that the README shows, from the outside: usage: minimal_test.py MINIMAL [unittest arguments]"""

import sys
import unittest

from trainer import Trainer

MINIMAL = None


class Minimal(unittest.TestCase):
    def test_says_where_it_serves_and_what_quantization_costs(self):
        with Trainer(MINIMAL, short=False) as trainer:
            code, out, err = trainer.finish(timeout=100)
        self.assertEqual(code, 0, err)
        # On a machine that others keep busy it says that snapshots are skipped, and nothing else.
        rest = [line for line in err.splitlines() if "no core is spare" not in line and "due snapshots" not in line]
        self.assertEqual(rest, [])
        lines = out.splitlines()
        self.assertRegex(lines[0], r"^metrics http://127\.0\.0\.1:\d+/metrics$")
        self.assertRegex(lines[-1], r"^3-bit GPTQ costs \S+ nats at step 2000\b")


if __name__ == "__main__":
    MINIMAL = sys.argv.pop(1)
    unittest.main(verbosity=2)
