#!/usr/bin/env python3
"""`ptqwatch cooldown` with a running char_gpt: cooldown_test.py CHAR_GPT PTQWATCH [unittest arguments]"""

import os
import re
import subprocess
import sys
import tempfile
import unittest

from beside import eventually
from trainer import Trainer, journal, weights

CHAR_GPT = PTQWATCH = None
RUN = ["--model", "mlp", "--schedule", "constant", "--every", "400", "--http", "off", "--grpc", "off"]
ENDLESS = ["--steps", "100000000"]


class Cooldown(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.run_dir = os.path.join(directory.name, "run")

    def ask(self, *flags):
        return subprocess.run([PTQWATCH, "cooldown", self.run_dir, *flags], capture_output=True, text=True, timeout=120)

    def test_predicts_while_training_goes_on_to_the_same_bits(self):
        def predicted():
            return [report["predicted_end"] for report in journal(self.run_dir)[0] if "predicted_end" in report]

        with Trainer(CHAR_GPT, *RUN, *ENDLESS, "--run-dir", self.run_dir) as trainer:
            trainer.wait_for("MLP|quantized")
            try:
                asked = self.ask("--steps", "80", "--wait")
            except subprocess.TimeoutExpired:
                if "waits for a spare core" in str(journal(self.run_dir)[1]):
                    self.skipTest("this machine has no core to spare, so the cooldown waited")
                raise
            self.assertEqual(asked.returncode, 0, asked.stdout + asked.stderr)
            last = eventually(predicted, "the next report has the prediction")[-1]
            trainer.process.terminate()
            code, out, err = trainer.finish()
        self.assertEqual(code, 143, err)
        steps = re.search(r"(?m)^interrupted after step (\d+)$", out)[1]
        self.assertRegex(asked.stdout, r"cooldown 1: step \d+, a decay of 80 steps: .*gptq3 error would end at [\d.]+ %")

        self.assertEqual((last["status"], last["decay_steps"]), ("ok", 80))
        self.assertEqual([decay["steps"] for decay in last["decays"]], [10, 20, 40])
        gptq3 = next(e for e in last["quantization"] if (e["method"], e["bits"]) == ("gptq", 3))
        self.assertLess(gptq3["error_low_ratio"], gptq3["error_ratio"])
        self.assertLess(gptq3["error_ratio"], gptq3["error_high_ratio"])

        with Trainer(CHAR_GPT, *RUN, "--steps", steps, "--monitor", "off") as trainer:
            code, unwatched, err = trainer.finish()
        self.assertEqual(code, 0, err)
        self.assertEqual(weights(out), weights(unwatched))

    def test_refusals_name_what_is_wrong(self):
        with Trainer(CHAR_GPT, *RUN, *ENDLESS, "--run-dir", self.run_dir) as trainer:
            trainer.wait_for("MLP|quantized")
            nothing_planned = self.ask()
            negative = self.ask("--steps", "-5")
            none_to_cancel = self.ask("--cancel")
        self.assertNotEqual(nothing_planned.returncode, 0)
        self.assertIn("decay_steps = 0", nothing_planned.stderr)
        self.assertNotEqual(negative.returncode, 0)
        self.assertIn("-5", negative.stderr)
        self.assertNotEqual(none_to_cancel.returncode, 0)
        self.assertIn("no shadow cooldown is under way", none_to_cancel.stderr)


if __name__ == "__main__":
    CHAR_GPT, PTQWATCH = sys.argv[1:3]
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
