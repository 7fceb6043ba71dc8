#!/usr/bin/env python3
"""Tests the learning-rate decay study as a program, at its smallest scales: lr_decay_study_test.py STUDY LR_DECAY_STUDY [unittest arguments]"""

import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest

STUDY = None  # the command: the script and the program that trains a leg
# Claims that can be judged at every scale.
EVERYWHERE = ("7", "8 (3 bits)", "9 (3 bits)", "11 (3 bits)", "18", "19", "23", "25 (trace)", "jump (gptq-mxfp4)", "immune (gptq-fp8_e4m3)",
              "factor (gptq4-int-h64)", "sharper (gptq4)", "noise", "critical sharpness (gradient)", "critical sharpness (error)", "merge (length)",
              "merge (3 bits)", "short", "SAM (E)", "Muon", "mixture (jump, gptq-nvfp4)", "mixture (every expert)", "mixture (prediction, 4 bits)")


def results(folder):
    """The results of a study, without its times."""
    with open(os.path.join(folder, "results.json"), encoding="utf-8") as file:
        found = json.load(file)
    seconds = found.pop("seconds")
    assert all(value > 0 for value in seconds.values()), seconds
    return found


class StudyTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.directory.cleanup)
        cls.text = cls.path("text")
        with open(cls.text, "w", encoding="ascii") as text:
            text.write("".join(f"{i} times {i % 7} is {i * (i % 7)}.\n" for i in range(5000)))

    @classmethod
    def path(cls, name):
        return os.path.join(cls.directory.name, name)

    def command(self, folder, *flags):
        return [*STUDY, "--tiny", "--text", self.text, "--dir", folder, *flags]

    def run_study(self, folder, *flags):
        return subprocess.run(self.command(folder, *flags), capture_output=True, text=True, timeout=240)

    def start(self, folder, *flags):
        process = subprocess.Popen(self.command(folder, *flags), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def wait_for_legs(self, process, count):
        """Reads the study's progress until `count` legs are finished."""
        for line in process.stderr:
            if int(line.split()[0]) >= count:
                return
        self.fail("ended too early")


class Whole(StudyTest):
    """One uninterrupted study, and uses of its results."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.whole = cls.path("whole, with a comma")
        done = subprocess.run([*STUDY, "--tiny", "--text", cls.text, "--dir", cls.whole, "--jobs", "2",
                               "--plot", cls.path("plots"), "--pack", cls.path("packed.tar.gz")], capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stderr
        cls.out, cls.err = done.stdout, done.stderr

    def test_every_claim_is_judged_and_nothing_is_called_evidence(self):
        found = results(self.whole)
        self.assertFalse(found["evidence"])
        self.assertIn("smoke test", self.out)
        with open(os.path.join(self.whole, "results.md"), encoding="utf-8") as page:
            self.assertIn("smoke test", page.read())
        self.assertEqual({claim["verdict"] for claim in found["claims"]}, {"too few seeds", "not run"})
        for number in EVERYWHERE:
            self.assertTrue(next(c for c in found["claims"] if c["id"] == number)["seeds"], number)
        of_mixtures = ("s0.mixture", "s0.dense")
        of_help = tuple(name for name in found["runs"] if name.startswith("s0.help-"))
        self.assertEqual(len(of_help), 5)
        for name, points in found["runs"].items():
            for point in points:
                for number in ("loss_nats", "noise_nats"):
                    self.assertIsNotNone(point[number], f"{name} {number}")
                part = "mixture_quantizers" if name in of_mixtures else "help_quantizers" if name in of_help else "quantizers"
                for quantizer in found["settings"][part]:
                    for number in ("error_ratio", "displacement_norm", "curvature_along_error"):
                        self.assertIsNotNone(point[quantizer][number], f"{name} {quantizer} {number}")
        # At the first steps of some runs, of the GPTs, and of short runs, the loss does not rise again along the gradient.
        self.assertTrue(all(points[-1]["critical_sharpness"] > 0 for name, points in found["runs"].items()
                            if name not in of_mixtures + of_help))
        self.assertRegex(self.err, r"about \d+ (s|min) left")

    def test_killed_it_goes_on_and_finds_the_same(self):
        folder = self.path("killed")
        process = self.start(folder, "--jobs", "2")
        self.wait_for_legs(process, 3)
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.assertFalse(os.path.exists(os.path.join(folder, "results.json")))
        # As if the power had failed in the middle of a leg.
        os.makedirs(os.path.join(folder, "legs", "s0.trunk@000160.part"), exist_ok=True)

        process = self.start(folder, "--jobs", "1")
        self.wait_for_legs(process, 8)
        process.send_signal(signal.SIGINT)
        self.assertIn("the same command continues", process.stderr.read())
        self.assertEqual(process.wait(), 130)
        # The study judged the finished runs.
        self.assertLess(len(results(folder)["runs"]), len(results(self.whole)["runs"]))

        done = self.run_study(folder, "--jobs", "2")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(results(folder), results(self.whole))
        self.assertFalse([name for name in os.listdir(os.path.join(folder, "legs")) if name.endswith(".part")])

        # Nothing is left to do.
        start = time.monotonic()
        self.assertEqual(self.run_study(folder).stderr, "")
        self.assertLess(time.monotonic() - start, 30)

    def test_integers_alone(self):
        folder = self.path("integers")
        done = self.run_study(folder, "--integers", "--only", "cosine")
        self.assertEqual(done.returncode, 0, done.stderr)
        found = results(folder)
        self.assertEqual(found["settings"]["quantizers"], ["rtn3", "rtn4", "gptq3", "gptq4"])
        judged = {claim["id"]: bool(claim["seeds"]) for claim in found["claims"]}
        self.assertTrue(judged["22 (end)"])
        self.assertFalse(judged["jump (gptq-mxfp4)"])

    def test_a_leg_that_fails_does_not_lose_the_others(self):
        folder = self.path("failing")
        self.assertEqual(self.run_study(folder, "--only", "cosine").returncode, 0)
        damaged = os.path.join(folder, "legs", "s0.trunk@000064", "state.safetensors")
        with open(damaged, "wb") as state:
            state.write(b"no longer one")
        done = self.run_study(folder, "--only", "budget")
        self.assertEqual(done.returncode, 1)
        log = os.path.join(folder, "logs", "s0.trunk@000072.log")
        self.assertIn(log, done.stderr)
        with open(log, encoding="utf-8") as lines:
            self.assertIn(damaged, lines.read())
        self.assertIn("s0.cooldown-40", results(folder)["runs"])
        self.assertNotIn("s0.trunk", results(folder)["runs"])

    def test_other_settings_and_other_studies_are_refused(self):
        done = self.run_study(self.whole, "--seeds", "2")
        self.assertEqual(done.returncode, 2)
        self.assertIn(f"--dir {self.whole}: was made with other settings: seeds is 1, not 2", done.stderr)
        folder = self.path("taken")
        process = self.start(folder, "--jobs", "1")
        self.wait_for_legs(process, 1)
        done = self.run_study(folder)
        self.assertEqual(done.returncode, 2)
        self.assertIn(f"--dir {folder}: another study is running there", done.stderr)

    def test_plots_and_pack(self):
        self.assertEqual(len(os.listdir(self.path("plots"))), 12)
        for name in os.listdir(self.path("plots")):
            self.assertIn(os.path.join(self.path("plots"), name), self.out)
            with open(os.path.join(self.path("plots"), name), "rb") as image:
                self.assertEqual(image.read(4), b"\x89PNG")
        with tarfile.open(self.path("packed.tar.gz")) as packed:
            for name in ("results.json", "results.md", "versions.txt", "study.json", "journals/s0.trunk/journal.jsonl"):
                self.assertIn("packed/" + name, packed.getnames())
            packed.extract("packed/results.json", self.path("unpacked"))
        # --results judges it again without training, with the same table.
        done = subprocess.run([*STUDY, "--results", os.path.join(self.path("unpacked"), "packed", "results.json")], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout, self.out.partition("\nresults: ")[0])


class BadInput(StudyTest):
    def refused(self, *flags, says):
        done = subprocess.run([*STUDY, "--tiny", *flags], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        for part in says:
            self.assertIn(part, done.stderr)

    def test_flags(self):
        self.refused("--sedes", "3", says=["--sedes"])
        self.refused("--seeds", "0", says=["--seeds", "0"])
        self.refused("--jobs", "0", says=["--jobs", "0"])
        self.refused("--only", "everything", says=["--only", "everything"])
        self.refused("--quick", says=["--quick"])
        self.refused("--pack", "study.zip", says=["--pack", "study.zip", ".tar.zst"])

    def test_what_is_named_must_be_there(self):
        self.refused("--program", "/nonexistent/program", says=["--program /nonexistent/program", "--target lr_decay_study"])
        self.refused("--results", self.text, says=[f"--results {self.text}", "not a results.json"])

    def test_text_and_directory(self):
        self.refused("--text", "/nonexistent/text", says=["--text", "/nonexistent/text"])
        short = self.path("short")
        with open(short, "w", encoding="ascii") as text:
            text.write("too short a text\n")
        self.refused("--text", short, "--dir", self.path("x"), says=["--text", short, "too short"])
        self.refused("--text", self.text, "--dir", "/proc/study", says=["--dir /proc/study"])
        self.refused("--text", self.text, "--dir", self.directory.name, says=[f"--dir {self.directory.name}", "contains "])


class Quick(unittest.TestCase):
    def test_on_the_text_of_the_study(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([*STUDY, "--quick", "--dir", folder, "--jobs", "2"], capture_output=True, text=True, timeout=540)
            self.assertEqual(done.returncode, 0, done.stderr)
            found = results(folder)
        self.assertFalse(found["evidence"])
        for number in EVERYWHERE:
            self.assertTrue(next(c for c in found["claims"] if c["id"] == number)["seeds"], number)


if __name__ == "__main__":
    STUDY = [sys.argv[1], "--program", sys.argv[2]]
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
