#!/usr/bin/env python3
"""Tests examples/plot_slice as a program: plot_slice_test.py PLOT_SLICE [unittest arguments]"""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import unittest

PLOT_SLICE = None


def sample():
    return {"schema_version": 1, "step": 800, "previous_step": 700, "method": "gptq", "bits": 3, "group_size": 64,
            "weight_norm": 12.5, "batch_tokens": 4096,
            "current": {"x": 0, "y": 0, "loss_nats": 1.5}, "previous": {"x": 0.2, "y": 0, "loss_nats": 1.6},
            "quantized": {"x": 0.1, "y": 0.1, "loss_nats": None}, "x": [-0.1, 0.1, 0.3], "y": [-0.05, 0.15],
            "loss_nats": [[1.6, 1.55, 2.0], [1.7, None, 2.5]]}


class PlotSlice(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        self.file = os.path.join(self.directory.name, "slice-800.json")

    def plot(self, content, *flags, file=None):
        if content is not None:
            with open(self.file, "w", encoding="utf-8") as out:
                out.write(content if isinstance(content, str) else json.dumps(content))
        return subprocess.run([sys.executable, PLOT_SLICE, file or self.file, *flags], capture_output=True, text=True)

    def refused(self, content, *flags, says, file=None):
        result = self.plot(content, *flags, file=file)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn(says, result.stderr)
        self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
        self.assertEqual(os.listdir(self.directory.name), [] if content is None else ["slice-800.json"])

    def test_says_what_is_wrong_with_the_file(self):
        self.refused(None, file="/nonexistent/slice.json", says="/nonexistent/slice.json: No such file")
        self.refused("{", says="not JSON")
        self.refused("[]", says="not a slice of ptqwatch")
        self.refused({"step": 1}, says="not a slice of ptqwatch")
        self.refused({**sample(), "loss_nats": [[1, 2, 3]]}, says="not a grid of 2 x 3")
        self.refused({**sample(), "loss_nats": [[1, 2, 3], [1, "x", 3]]}, says="not a number")
        self.refused({**sample(), "loss_nats": [[None] * 3] * 2}, says="no finite loss")
        self.refused(sample(), "-o", "slice.bmp", says="slice.bmp: must end in .png")

    def test_draws_a_picture(self):
        if importlib.util.find_spec("matplotlib") is None:
            self.refused(sample(), says="matplotlib is missing: apt install python3-matplotlib")
            self.skipTest("matplotlib is not installed")
        result = self.plot(sample())
        self.assertEqual(result.returncode, 0, result.stderr)
        picture = os.path.join(self.directory.name, "slice-800.png")
        self.assertEqual(result.stdout, picture + "\n")
        with open(picture, "rb") as file:
            self.assertEqual(file.read(8), b"\x89PNG\r\n\x1a\n")
        svg = os.path.join(self.directory.name, "a.svg")
        self.assertEqual(self.plot(sample(), "-o", svg).returncode, 0)
        with open(svg, "rb") as file:
            first = file.read()
        self.assertIn(b"<svg", first)
        self.assertEqual(self.plot(sample(), "-o", svg).returncode, 0)
        with open(svg, "rb") as file:
            self.assertEqual(file.read(), first)


if __name__ == "__main__":
    PLOT_SLICE = sys.argv[1]
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
