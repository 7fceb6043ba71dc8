#!/usr/bin/env python3
"""The server that a trainer starts beside itself, from the outside:   server_beside_test.py CHAR_GPT"""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest
import urllib.error
import urllib.request

from beside import children_of, eventually, inet_sockets, server_of

CHAR_GPT = pathlib.Path(sys.argv[1]).resolve()
SMALL = ["--width", "8", "--layers", "1", "--heads", "2", "--length", "8", "--probe-sequences", "8", "--calibration-sequences", "8"]
PORTS = ["--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"]


def scrape(url):
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.read().decode()
    except (urllib.error.URLError, ConnectionError):
        return None


class Serve(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def train(self, *flags, environment=None):
        trainer = subprocess.Popen([CHAR_GPT, *SMALL, *flags], cwd=self.root, env=os.environ | (environment or {}),
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

        def end():
            trainer.kill()
            trainer.wait()
            trainer.stdout.close()
            trainer.stderr.close()
        self.addCleanup(end)
        return trainer

    def addresses(self, trainer):
        metrics, grpc = trainer.stdout.readline(), trainer.stdout.readline()
        self.assertRegex(metrics, r"^metrics http://127\.0\.0\.1:\d+/metrics$")
        self.assertRegex(grpc, r"^grpc 127\.0\.0\.1:\d+$")
        return metrics.split()[1]

    def test_survives_its_end_and_ends_with_the_trainer(self):
        trainer = self.train(*PORTS, "--steps", "100000000", "--every", "1000", "--run-dir", "run")
        url = self.addresses(trainer)
        eventually(lambda: "\nptqwatch_step " in (scrape(url) or ""))
        self.assertEqual(inet_sockets(trainer.pid), set())
        first = server_of(trainer.pid)
        self.assertTrue(inet_sockets(first))
        # The server is a child of init, and the trainer has no child.
        self.assertNotIn(f"PPid:\t{trainer.pid}\n", pathlib.Path(f"/proc/{first}/status").read_text())
        self.assertEqual(children_of(trainer.pid), [])
        self.assertEqual(pathlib.Path(f"/proc/{first}/oom_score_adj").read_text(), "1000\n")
        os.kill(first, signal.SIGKILL)
        eventually(lambda: scrape(url) and server_of(trainer.pid) not in (None, first))
        self.assertIsNone(trainer.poll())
        eventually(lambda: "\nptqwatch_server_restarts_total 1\n" in (scrape(url) or ""))
        server = json.loads((self.root / "run/status.json").read_text())["status"]["server"]
        self.assertEqual((server["state"], server["metrics"], server["restarts"]), ("serving", url, 1))
        second = server_of(trainer.pid)
        trainer.kill()
        eventually(lambda: not pathlib.Path(f"/proc/{second}").exists())

    def test_leaves_no_directory_behind(self):
        trainer = self.train(*PORTS, "--steps", "50", environment={"XDG_RUNTIME_DIR": str(self.root)})
        self.addresses(trainer)
        out, errors = trainer.communicate(timeout=120)
        self.assertEqual(trainer.returncode, 0, errors)
        self.assertRegex(out, r"(?m)^weights sha256 [0-9a-f]{64}$")
        eventually(lambda: not any(self.root.iterdir()))

    def test_changes_no_bit_of_training(self):
        def weights(*flags, environment=None):
            trainer = self.train("--steps", "60", *flags, environment=environment)
            out, errors = trainer.communicate(timeout=120)
            self.assertEqual(trainer.returncode, 0, errors)
            return re.search(r"(?m)^weights sha256 (\w+)$", out)[1], errors
        alone, _ = weights("--monitor", "off")
        served, _ = weights(*PORTS, "--run-dir", "run")
        self.assertEqual(served, alone)
        # Without the program the run goes on and says what to type.
        unserved, errors = weights(*PORTS, "--run-dir", "other", environment={"PTQWATCH_PROGRAM": "/nowhere/ptqwatch"})
        self.assertEqual(unserved, alone)
        self.assertIn("PTQWATCH_PROGRAM = '/nowhere/ptqwatch'", errors)
        self.assertIn(f"ptqwatch serve {self.root / 'other'}", errors)
        self.assertIn("server_failed", (self.root / "other/journal.jsonl").read_text())

    def test_says_that_a_port_is_busy_and_serves_when_it_is_free(self):
        first = self.train(*PORTS, "--steps", "100000000", "--every", "1000", "--run-dir", "first")
        address = re.search(r"//(.*)/", self.addresses(first))[1]
        second = self.train("--http", address, "--grpc", "off", "--steps", "100000000", "--every", "1000", "--run-dir", "second")
        eventually(lambda: "server_failed" in self.journal("second"))
        self.assertIn(address, self.journal("second"))
        first.kill()
        eventually(lambda: "serves again" in self.journal("second"))
        eventually(lambda: "\nptqwatch_step " in (scrape(f"http://{address}/metrics") or ""))

    def journal(self, run):
        path = self.root / run / "journal.jsonl"
        return path.read_text() if path.exists() else ""


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)
