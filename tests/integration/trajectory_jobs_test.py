#!/usr/bin/env python3
"""Shares the checkpoints of a tiny Llama among jobs, with the files that docs/trajectory.md shows: trajectory_jobs_test.py PTQWATCH Make|Slurm

Slurm exits with 77 ("skipped") without Debian's slurm-wlm; see slurm.py."""

import os
import pathlib
import re
import subprocess
import sys
import unittest

import slurm
import trajectory_test

PTQWATCH = sys.argv[1]
PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/trajectory.md"


def block(language):
    """The document's file in this language, for the tiny checkpoints."""
    text = re.search(rf"^```{language}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)[1]
    return text.replace("--length 512", f"--length {trajectory_test.LENGTH} --quantizers gptq3,rtn4").replace("--threads 4", "--threads 1").replace("--cpus-per-task=4", "--cpus-per-task=1")


class Jobs(trajectory_test.Trajectory):
    def setUp(self):
        super().setUp()
        self.save(100, 200, 300, 400, 500)
        self.environment = {**os.environ, "PATH": f"{os.path.dirname(PTQWATCH)}:{os.environ['PATH']}"}
        self.run_program(self.words(run_dir="alone"))

    def check(self, said):
        self.assertEqual(self.reports("runs/1"), self.reports("alone"), said)
        self.assertEqual(list((self.root / "runs/1").glob("part-*")), [])


class Make(Jobs):
    def make(self, *words):
        done = subprocess.run(["make", *words], cwd=self.root, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=250, check=False)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def test_shares_the_units_among_processes(self):
        (self.root / "Makefile").write_text(block("make"))
        self.make("unit-3")
        said = self.make("-j2")
        self.assertCountEqual(re.findall(r"--only (\d+)", said), ["0", "1", "2", "4"])
        self.check(said)
        self.assertNotIn("--only", self.make("-j2"))
        self.check("")


class Slurm(Jobs):
    def test_shares_the_units_among_the_jobs_of_an_array(self):
        with slurm.Cluster(self.root / "slurm", self.environment) as cluster:
            (self.root / "measure.sh").write_text(block("sh"))
            cluster.run("sh", "measure.sh", "submit", folder=self.root)
            cluster.wait_for_jobs()
            said = "".join(path.read_text() for path in sorted(self.root.glob("slurm-*.out")))
            self.assertEqual(len(list(self.root.glob("slurm-*_?.out"))), 5, said)
        self.check(said)


if __name__ == "__main__":
    if sys.argv[2] == "Slurm" and (missing := slurm.missing()):
        print(f"skipped: {missing}")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], sys.argv[2], *sys.argv[3:]], verbosity=2)
