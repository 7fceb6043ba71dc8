#!/usr/bin/env python3
"""Tests char_gpt as a program: trainer_test.py CHAR_GPT PTQWATCH [unittest arguments]"""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

from trainer import Trainer, journal, prometheus_program, weights

CHAR_GPT = PTQWATCH = None
PORT_0 = ["--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"]


class BitIdentity(unittest.TestCase):
    def check(self, *flags):
        hashes = set()
        for monitor in ("on", "off"):
            with Trainer(CHAR_GPT, *flags, "--monitor", monitor, *PORT_0) as trainer:
                code, out, err = trainer.finish()
                self.assertEqual(code, 0, err)
                self.assertRegex(out, r"(?m)^training seconds \d+\.\d+$")
                for served in (r"(?m)^metrics http://127\.0\.0\.1:\d+/metrics$", r"(?m)^grpc 127\.0\.0\.1:\d+$"):
                    self.assertEqual(re.search(served, out) is not None, monitor == "on")
                hashes.add(weights(out))
        self.assertEqual(len(hashes), 1, hashes)

    def test_one_thread(self):
        self.check("--steps", "200", "--threads", "1")

    def test_two_threads(self):
        self.check("--steps", "120", "--threads", "2")

    def test_mlp(self):
        self.check("--model", "mlp", "--steps", "120")


class Live(unittest.TestCase):
    def test_metrics_pass_promtool_and_follow_the_run(self):
        with Trainer(CHAR_GPT, "--steps", "200", "--linger", "60", *PORT_0) as trainer:
            trainer.wait_for(r"^weights sha256")
            page = trainer.metrics("\nptqwatch_snapshot_step 200\n", "\nptqwatch_step 200\n")
            trainer.process.send_signal(signal.SIGTERM)
            code, out, err = trainer.finish()
        self.assertEqual(code, 143, err)
        check = subprocess.run([prometheus_program("promtool"), "check", "metrics"], input=page, text=True, capture_output=True)
        self.assertEqual((check.returncode, check.stdout, check.stderr), (0, "", ""))
        values = dict(line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#"))
        self.assertEqual(float(values["ptqwatch_step"]), 200)
        self.assertEqual(float(values["ptqwatch_snapshot_step"]), 200, out + err)
        for method in ("rtn", "gptq"):
            for bits in (3, 4):
                self.assertIn(f'ptqwatch_quantization_error_ratio{{method="{method}",bits="{bits}",format="int"}}', values)
        self.assertEqual(float(values['ptqwatch_lr_phase{phase="decay"}']), 1)

    def test_finish_measures_the_last_step(self):
        with tempfile.TemporaryDirectory() as run_dir, \
                Trainer(CHAR_GPT, "--steps", "93", "--run-dir", run_dir, *PORT_0) as trainer:
            self.assertEqual(trainer.finish()[0], 0)
            reports, _, bad = journal(run_dir)
            self.assertEqual(bad, 0)
            self.assertEqual(reports[-1]["step"], 93)
            self.assertEqual(reports[-1]["trigger"], "finish")
            for entry in reports[-1]["quantization"]:
                self.assertEqual(entry["status"], "ok")
                self.assertTrue(all(layer["status"] == "ok" for layer in entry["layers"]))
            self.assertIn("output head", {layer["reason"] for layer in reports[-1]["skipped_layers"]})

    def test_sequential_calibration(self):
        with tempfile.TemporaryDirectory() as run_dir, \
                Trainer(CHAR_GPT, "--steps", "40", "--calibration", "sequential", "--every", "40", "--methods", "gptq,rtn",
                        "--bits", "3", "--run-dir", run_dir, *PORT_0) as trainer:
            code, _, err = trainer.finish()
            self.assertEqual(code, 0, err)
            reports, _, _ = journal(run_dir)
            self.assertEqual(reports[-1]["calibration_mode"], "sequential")
            self.assertEqual([entry["status"] for entry in reports[-1]["quantization"]], ["ok", "ok"])

    def test_log_spaced_snapshots(self):
        with tempfile.TemporaryDirectory() as run_dir, \
                Trainer(CHAR_GPT, "--steps", "40", "--every", "2/decade", "--wait", "on", "--methods", "rtn", "--bits", "4",
                        "--run-dir", run_dir, *PORT_0) as trainer:
            code, _, err = trainer.finish()
            self.assertEqual(code, 0, err)
            self.assertEqual([report["step"] for report in journal(run_dir)[0]], [1, 4, 10, 32, 40])

    def test_slice_of_the_next_two_snapshots(self):
        with tempfile.TemporaryDirectory() as run_dir, \
                Trainer(CHAR_GPT, "--steps", "100000", "--wait", "on", "--run-dir", run_dir, *PORT_0) as trainer:
            trainer.wait_for("parameters are quantized")
            done = subprocess.run([PTQWATCH, "slice", run_dir, "--method", "gptq", "--bits", "3", "--points", "5", "--wait"],
                                  text=True, capture_output=True, timeout=240)
            self.assertEqual(done.returncode, 0, done.stderr)
            path = re.search(r"^slice (\S+)$", done.stdout, re.MULTILINE)[1]
            with open(path, encoding="utf-8") as file:
                data = json.load(file)
            self.assertEqual(path, os.path.join(run_dir, f"slice-{data['step']}.json"))
            self.assertEqual(data["previous_step"], data["step"] - 40)
            reports, _, _ = journal(run_dir)
            report = next(report for report in reports if report["step"] == data["step"])
            change = data["quantized"]["loss_nats"] - data["current"]["loss_nats"]
            gptq3 = next(entry for entry in report["quantization"] if (entry["method"], entry["bits"]) == ("gptq", 3))
            self.assertAlmostEqual(change, gptq3["curvature_batch_delta_nats"], places=5)

    def test_disabled_by_the_environment(self):
        with Trainer(CHAR_GPT, "--steps", "30", *PORT_0, env={"PTQWATCH_DISABLE": "1"}) as trainer:
            code, out, err = trainer.finish()
            self.assertEqual(code, 0, err)
            self.assertNotIn("snapshot step", out)


class Interrupted(unittest.TestCase):
    def test_ctrl_c_leaves_a_journal_that_is_resumed(self):
        with tempfile.TemporaryDirectory() as run_dir:
            flags = ["--steps", "100000", "--run-dir", run_dir, *PORT_0]
            with Trainer(CHAR_GPT, *flags) as trainer:
                trainer.wait_for(r"^snapshot step")
                trainer.process.send_signal(signal.SIGINT)
                code, out, _ = trainer.finish(timeout=60)
                self.assertEqual(code, 130)
                self.assertRegex(out, r"(?m)^weights sha256")
            first, _, bad = journal(run_dir)
            self.assertGreaterEqual(len(first), 1)
            self.assertEqual(bad, 0)
            with Trainer(CHAR_GPT, "--steps", "60", "--run-dir", run_dir, *PORT_0) as trainer:
                self.assertEqual(trainer.finish()[0], 0)
            both, events, bad = journal(run_dir)
            self.assertEqual(bad, 0)
            self.assertIn("resumed", [event["kind"] for event in events])
            self.assertEqual({report["run_id"] for report in both}, {first[0]["run_id"]})
            self.assertEqual(both[-1]["attempt"], 2)
            self.assertEqual([report["sequence"] for report in both], list(range(1, len(both) + 1)))

    def test_two_runs_cannot_share_a_directory(self):
        with tempfile.TemporaryDirectory() as run_dir:
            with Trainer(CHAR_GPT, "--steps", "100000", "--run-dir", run_dir, *PORT_0) as first:
                first.wait_for(r"^metrics ")
                with Trainer(CHAR_GPT, "--steps", "50", "--run-dir", run_dir, *PORT_0) as second:
                    code, out, err = second.finish()
                    self.assertEqual(code, 0, err)
                    self.assertIn("nothing is measured", err)
                    self.assertIn(run_dir, err)
                    self.assertIn("weights sha256", out)
                self.assertEqual(first.process.poll(), None)


class LimitedMemory(unittest.TestCase):
    FLAGS = ["--steps", "90", "--width", "128", "--grpc", "off", "--http", "127.0.0.1:0"]

    def peak(self):
        """The weights and the largest address space of training alone."""
        with Trainer(CHAR_GPT, *self.FLAGS, "--monitor", "off") as trainer:
            peak = 0
            while trainer.process.poll() is None:
                with contextlib.suppress(OSError), open(f"/proc/{trainer.process.pid}/status") as status:
                    peak = max([peak] + [1024 * int(line.split()[1]) for line in status if line.startswith("VmPeak:")])
                time.sleep(0.02)
            return weights(trainer.finish()[1]), peak

    # Each arena of malloc takes 64 MB of the address space, and how many there are depends on chance.
    @unittest.mock.patch.dict(os.environ, MALLOC_ARENA_MAX="1")
    def test_training_goes_on_to_the_same_bits(self):
        expected, peak = self.peak()
        inert = left_out = measured = 0
        # The stacks of the monitor's eight threads take 8 MB.
        for megabytes in (20, 40, 80, 150, 600):
            with self.subTest(megabytes=megabytes), tempfile.TemporaryDirectory() as run_dir, \
                    Trainer(CHAR_GPT, *self.FLAGS, "--run-dir", run_dir,
                            address_space=peak + megabytes * 2**20) as trainer:
                code, out, err = trainer.finish()
                self.assertEqual(code, 0, err)
                self.assertEqual(weights(out), expected)
                if "nothing is measured" in err:
                    self.assertRegex(err, "max_bytes|memory|thread")
                    inert += 1
                    continue
                statuses = [entry["status"] for report in journal(run_dir)[0] for entry in report["quantization"]]
                measured += all(status == "ok" for status in statuses)
                left_out += any(status != "ok" for status in statuses)
        self.assertGreater(measured, 0)
        self.assertGreater(inert + left_out, 0)


class BadInput(unittest.TestCase):
    def refused(self, *flags, says, short=True):
        with Trainer(CHAR_GPT, *flags, short=short) as trainer:
            code, out, err = trainer.finish(timeout=60)
        self.assertEqual(code, 2, out + err)
        for part in says:
            self.assertIn(part, err)
        self.assertLessEqual(len(err.strip().splitlines()), 2, err)
        self.assertNotIn("weights sha256", out)

    def test_flags(self):
        self.refused("--evry", "5", says=["--evry"])
        self.refused("--every", "0", says=["--every", "0"], short=False)
        self.refused("--every", "-7", says=["--every", "-7"], short=False)
        for schedule in ("0s", "nans", "5/decades", "0/decade", "s", "10 20"):
            self.refused("--every", schedule, says=["--every", f"'{schedule}'"], short=False)
        self.refused("--decay-density", "0", says=["--decay-density", "0"])
        self.refused("--bits", "9", says=["--bits", "9"])
        self.refused("--methods", "magic", says=["--methods", "magic"])
        self.refused("--calibration", "both", says=["--calibration", "both"])
        self.refused("--monitor", "maybe", says=["--monitor", "maybe"])
        self.refused("--threads", "0", says=["--threads", "0"])
        self.refused("--lr", "nan", says=["--lr", "nan"])

    def test_text_that_cannot_be_read(self):
        self.refused("--text", "/nonexistent/text", says=["--text", "/nonexistent/text"])
        self.refused("--text", "/dev/null", says=["--text", "/dev/null"])

    def trains(self, *flags, says):
        """Training ends normally, and the output says what the monitor lacks."""
        with Trainer(CHAR_GPT, "--steps", "30", *flags) as trainer:
            code, out, err = trainer.finish(timeout=60)
        self.assertEqual(code, 0, out + err)
        for part in says:
            self.assertIn(part, err)
        self.assertIn("weights sha256", out)
        return out

    def test_run_directory_that_cannot_be_made(self):
        self.trains("--run-dir", "/proc/run", *PORT_0, says=["nothing is measured", "/proc/run"])

    def test_port_that_is_taken(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            for flag, line in (("--http", "metrics "), ("--grpc", "grpc ")):
                out = self.trains(*PORT_0, flag, address, says=["no server beside this run", address, "in use"])
                self.assertFalse([text for text in out.splitlines() if text.startswith(line)], out)

    def test_addresses(self):
        for flag in ("--http", "--grpc"):
            for address in ("localhost", "127.0.0.1:99999", "1.2.3:x", ""):
                self.refused(*PORT_0, flag, address, says=[flag, f"'{address}'"])
        self.refused(*PORT_0, "--grpc", "0.0.0.0:0", says=["--grpc", "'0.0.0.0:0'", "loopback"])


if __name__ == "__main__":
    CHAR_GPT, PTQWATCH = sys.argv[1:3]
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
