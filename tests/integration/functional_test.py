#!/usr/bin/env python3
"""Tests the trainer without torch::nn::Module as a program: functional_test.py FUNCTIONAL [unittest arguments]"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest

from trainer import Trainer, journal, prometheus_program, weights

FUNCTIONAL = None
PORT_0 = ["--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"]


class FunctionalTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.directory.cleanup)
        cls.text = os.path.join(cls.directory.name, "text")
        with open(cls.text, "w", encoding="ascii") as text:
            text.write("".join(f"{i} times {i % 7} is {i * (i % 7)}.\n" for i in range(2500)))

    def start(self, *flags):
        return Trainer(FUNCTIONAL, "--text", self.text, "--batch", "64", "--every", "40", *PORT_0, *flags, short=False)


class BitIdentity(FunctionalTest):
    def test_weights_are_the_same_on_and_off(self):
        hashes = set()
        for monitor in ("on", "off"):
            with self.start("--steps", "400", "--monitor", monitor) as trainer:
                code, out, err = trainer.finish()
            self.assertEqual(code, 0, err)
            self.assertRegex(out, r"(?m)^training seconds \d+\.\d+$")
            self.assertEqual("metrics http" in out, monitor == "on")
            self.assertEqual("snapshot step" in out, monitor == "on")
            hashes.add(weights(out))
        self.assertEqual(len(hashes), 1, hashes)

    def test_another_seed_gives_other_weights(self):
        hashes = set()
        for seed in ("0", "1"):
            with self.start("--steps", "20", "--monitor", "off", "--seed", seed) as trainer:
                self.assertEqual(trainer.finish()[0], 0)
                hashes.add(trainer.wait_for(r"^weights sha256 (\S+)$")[1])
        self.assertEqual(len(hashes), 2)


class Live(FunctionalTest):
    def test_every_layer_is_measured_and_served(self):
        run_dir = os.path.join(self.directory.name, "run")
        with self.start("--steps", "200", "--wait", "on", "--linger", "60", "--run-dir", run_dir) as trainer:
            trainer.wait_for(r"^weights sha256")
            page = trainer.metrics("\nptqwatch_snapshot_step 200\n")
            trainer.process.send_signal(signal.SIGTERM)
            code, out, err = trainer.finish()
        self.assertEqual(code, 143, err)
        self.assertRegex(out, r"(?m)^validation loss \d+\.\d+$")
        self.assertEqual(len(re.findall(r"(?m)^snapshot step \d+ ", out)), 5)
        check = subprocess.run([prometheus_program("promtool"), "check", "metrics"], input=page, text=True, capture_output=True)
        self.assertEqual((check.returncode, check.stdout, check.stderr), (0, "", ""))
        self.assertRegex(page, r'(?m)^ptqwatch_quantization_error_ratio\{method="gptq",bits="3",format="int"\} ')
        reports, _, _ = journal(run_dir)
        self.assertEqual([report["step"] for report in reports], [40, 80, 120, 160, 200])
        for report in reports:
            for entry in report["quantization"]:
                self.assertEqual(entry["status"], "ok")
                self.assertEqual([(layer["name"], layer["status"]) for layer in entry["layers"]],
                                 [(f"hidden_{i}", "ok") for i in (1, 2, 3)])
            self.assertEqual({layer["name"]: layer["reason"] for layer in report["skipped_layers"]},
                             {"embedding": "embedding", "head": "output head"})
        self.assertLess(reports[-1]["probe_loss_nats"], reports[0]["probe_loss_nats"])

    def test_ctrl_c_ends_the_run(self):
        with self.start("--steps", "1000000") as trainer:
            trainer.wait_for(r"^metrics ")
            trainer.process.send_signal(signal.SIGINT)
            code, out, _ = trainer.finish(timeout=60)
        self.assertEqual(code, 130)
        self.assertRegex(out, r"(?m)^interrupted after step \d+$")
        self.assertRegex(out, r"(?m)^weights sha256")


class BadInput(FunctionalTest):
    def refused(self, *flags, says):
        with self.start(*flags) as trainer:
            code, out, err = trainer.finish(timeout=60)
        self.assertEqual(code, 2, out + err)
        for part in says:
            self.assertIn(part, err)
        self.assertEqual(len(err.strip().splitlines()), 1, err)
        self.assertNotIn("weights sha256", out)

    def test_flags(self):
        self.refused("--evry", "5", says=["--evry"])
        self.refused("--steps", "0", says=["--steps", "0"])
        self.refused("--lr", "-1", says=["--lr", "-1"])
        self.refused("--decay-fraction", "1.5", says=["--decay-fraction", "1.5"])
        self.refused("--threads", "2", says=["--threads", "2", "one thread"])

    def test_a_text_that_is_too_short_is_refused(self):
        for characters in (0, 1, 8, 9, 10, 60):
            short = os.path.join(self.directory.name, "short")
            with open(short, "w", encoding="ascii") as text:
                text.write("abcdefghij"[:characters] * (1 if characters <= 10 else 6))
            for monitor in ("on", "off"):
                with self.subTest(characters=characters, monitor=monitor), Trainer(
                        FUNCTIONAL, "--text", short, "--steps", "5", "--monitor", monitor, *PORT_0, short=False) as trainer:
                    code, _, err = trainer.finish()
                    self.assertEqual(code, 2, err)
                    self.assertRegex(err, "--text .*short")

    def test_text(self):
        self.refused("--text", "/nonexistent/text", says=["--text", "/nonexistent/text"])
        self.refused("--text", "/dev/null", says=["--text", "/dev/null"])
        short = os.path.join(self.directory.name, "short")
        with open(short, "w", encoding="ascii") as text:
            text.write("too short a text\n")
        self.refused("--text", short, says=["--text", short, "too short"])


if __name__ == "__main__":
    FUNCTIONAL = sys.argv[1]
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
