#!/usr/bin/env python3
"""Runs every program and script that a document names:   commands_test.py BUILD_DIR Fast|Slow

A command line of a document must begin with a program of the tables below, and its flags must be in that program's --help. Each program
is run once by its entry: with its smallest settings where it would take minutes, as --help where it would change the machine."""

import functools
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest

from beside import eventually

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(sys.argv[1]).resolve()
PAGES = [SOURCE / "README.md", SOURCE / "CONTRIBUTING.md", SOURCE / "bazel/README.md", SOURCE / "tests/benchmarks/README.md",
         *sorted((SOURCE / "docs").glob("*.md")), *sorted((SOURCE / "dashboards/runbooks").glob("*.md"))]
GPT = "--width 8 --layers 1 --heads 2 --length 8"
TRAINER = f"char_gpt --http off --grpc off {GPT} --probe-sequences 8 --calibration-sequences 8"

# Commands that take seconds. LIVE is the directory of a run that goes on, OVER the directory of a run that has ended.
FAST = {
    "setup": "./setup --check",
    "examples/demo": "examples/demo --help",
    "examples/ranks/launch": f"examples/ranks/launch 2 build/release/bin/{TRAINER.replace('char_gpt', 'ranks', 1)} --steps 20 --every 10 --run-dir runs/ranks",
    "tests/run": "tests/run --help",
    "tests/bazel": "tests/bazel --help",
    "ptqwatch serve": None,  # has a test of its own
    "ptqwatch report": "ptqwatch report OVER -o run.html",
    "ptqwatch watch": "ptqwatch watch OVER --plain --count 1",
    "ptqwatch status": "ptqwatch status LIVE",
    "ptqwatch snapshot": "ptqwatch snapshot LIVE --wait",
    "ptqwatch slice": "ptqwatch slice LIVE --method rtn --bits 3",
    "ptqwatch cooldown": "ptqwatch cooldown LIVE --steps 40",
    "ptqwatch every": "ptqwatch every LIVE 50",
    "ptqwatch pause": "ptqwatch pause LIVE",
    "ptqwatch resume": "ptqwatch resume LIVE",
    "ptqwatch replay": "ptqwatch replay OVER",
    "ptqwatch history": "ptqwatch history OVER --csv",
    "ptqwatch layers": "ptqwatch layers OVER",
    "ptqwatch trajectory": "ptqwatch trajectory --help",  # has a test of its own
    "tests/gates/format": "tests/gates/format",
    "tests/gates/includes": "tests/gates/includes",
    "tests/gates/names": "tests/gates/names",
    "tests/gates/sizes": "tests/gates/sizes",
}
# Commands that take minutes, or whose programs are built for them.
SLOW = {
    "bench_monitor": "bench_monitor --benchmark_filter=NothingDue --benchmark_min_time=0.01",
    "bench_foreign": f"bench_foreign --text README.md --threads 1 --seconds 4 --steps-off 4 --every 8 --batch 4 --vocabulary 64 --probe-batches 2 {GPT}",
    "bench_quantize": "bench_quantize --quick --repeats 1",
    "bench_cuda": "bench_cuda --benchmark_list_tests",
    "bench_ranks": "bench_ranks --benchmark_list_tests",
    "bench_shards": "bench_shards --benchmark_list_tests",
    "bench_layers": "bench_layers --benchmark_filter=Line/224 --benchmark_min_time=0.01",
    "bench_trajectory": "bench_trajectory --help",  # its blocks are large
    "bench_curvature": f"bench_curvature --text README.md {GPT} --sequences 2 --train 2 --repeats 2",
    "bench_overhead": "bench_overhead --text README.md --width 8 --layers 1 --length 8 --probe-sequences 32 --window 2 --seconds 0.1",
    "bench_cooldown": f"bench_cooldown --seeds 1 --steps 40 --every 10 {GPT} --probe-sequences 16 --calibration-sequences 8",
    "bench_placement": "bench_placement --threads 1 --width 16 --batch 4 --window 4 --rounds 2",
    "tests/benchmarks/compare_quantizers": "tests/benchmarks/compare_quantizers --rows 128 --cols 128 --tokens 256 --repeats 1 build/release",
    "tests/benchmarks/compare_curvature": "tests/benchmarks/compare_curvature --help",  # judges, so its smallest settings may fail
    "tests/benchmarks/python_process.py": "tests/benchmarks/python_process.py build/release --quick",
    "tests/benchmarks/default_attention.py": "tests/benchmarks/default_attention.py build/release --repeats 1 --width 16 --length 16 --train 2",
    "tests/benchmarks/act_on_alert.py": "tests/benchmarks/act_on_alert.py build/release/bin/act_on_alert --seeds 0 --acts ignore --steps 600",
    "tests/benchmarks/subscribers": "tests/benchmarks/subscribers --rounds 1 --clients 2 build/release/bin/char_gpt",
    "tests/benchmarks/serve_load": "tests/benchmarks/serve_load --runs 2 --reports 20 --clients 4 --deaf 1 --rounds 1 build/release/bin",
    "tests/benchmarks/many_ranks": "tests/benchmarks/many_ranks --ranks 12 --past 3 --new 2 --parameters 10 --layers 4 --at-most 20 build/release/bin/ptqwatch",
    "tests/benchmarks/live_load": "tests/benchmarks/live_load --pairs 1 --window 1 --scrapes 5 --pages 2 build/release/bin/char_gpt",
    "tests/benchmarks/server_restart": "tests/benchmarks/server_restart --reports 50 --kills 1 build/release/bin",
    "tests/benchmarks/page_load": "tests/benchmarks/page_load OVER --reports 100 --rounds 1",
}
# Commands that another test runs: its name in CTest, or why no test runs it.
ELSEWHERE = {
    "cmake": "consumers.CMake",
    "g++": "consumers.PkgConfig",
    "examples/lr_decay_study/study": "lr_decay_study.Quick",
    "examples/plot_slice": "plot_slice",
    "quantize_checkpoint": "checkpoint.Program",
    "dashboards/stack": "dashboards.Stack",
    "python -m ptqwatch.dcp": "python.dcp",
    "tests/python/run": "python.quantize",
    "tests/faults/server_killed_test.py": "faults.ServerKilled",
    "tests/gates/kernels": "gate.kernels",
    "tests/gates/packages": "gate.packages",
    "tests/gates/thread_safety": "gate.thread_safety",
}
NEEDS_MORE = {
    "tests/door": "a fresh clone; .ci/run begins with it",
    "tests/bare_debian": "half an hour, root, and room for a system",
    "tests/aarch64": "a cross compiler and qemu",
    "tests/cuda/pack": "a build of its own",
    "tests/cuda/python_modes.py": "a GPU",
    "tests/cuda/run": "a GPU",
    "tests/fuzz/run": "an hour",
    "tests/benchmarks/python_step.py": "the Python package in PYTHONPATH",
    "grpcurl": "not a program of ours", "curl": "not a program of ours", "head": "not a program of ours",
}
KNOWN = {**FAST, **SLOW, **ELSEWHERE, **NEEDS_MORE}
# Programs whose flags are a library's, or which have no flags.
PASSED_ON = {"tests/benchmarks/act_on_alert.py": {"--every"},
             "examples/ranks/launch": {"--run-dir", "--steps", "--flip-step", "--flip-rank", "--sharded"}}  # to another program
NO_HELP = re.compile(r"bench_(monitor|cuda|layers|quantize|ranks)|cmake|g\+\+|python -m .*|dashboards/stack|tests/gates/\w+")


def program_of(words):
    """The key of the tables for a command line."""
    name = re.sub(r"^(\./)?(build/release/bin/)?", "", words[0])
    if name == "ptqwatch" and len(words) > 1:
        name = f"ptqwatch {words[1]}"
    if words[:2] == ["python", "-m"]:
        name = " ".join(words[:3])
    return name


def command_lines():
    """(page, line) of every code block in no language or in sh, and of every inline code that begins with a program of ours."""
    ours = re.compile(r"(\./|build/release/bin/|bench_|ptqwatch [a-z]|tests/\w+/?\w*(\.py)?( |$)|examples/(demo|plot_slice|lr_decay_study/study)|dashboards/stack)")
    for page in PAGES:
        text = page.read_text()
        blocks = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
        for language, block in blocks.findall(text):
            prompts = "$ " in block
            for line in block.replace("\\\n", " ").splitlines() if language in ("", "sh") else ():
                words = re.sub(r"\s#.*", "", line).split()
                if prompts:
                    words = words[1:] if words[:1] == ["$"] else []
                if words and (program_of(words) in KNOWN or ours.match(" ".join(words))):
                    yield page.relative_to(SOURCE), " ".join(words)
        for code in re.findall(r"`([^`\n]+)`", blocks.sub("", text)):
            words = code.split()
            path = SOURCE / words[0] if words else SOURCE
            if words and ours.match(code) and not (path.is_dir() or path.suffix in (".cc", ".h", ".md", ".json", ".yml", ".jsonl")):
                yield page.relative_to(SOURCE), code


class Documents(unittest.TestCase):
    maxDiff = None

    @functools.lru_cache(maxsize=None)
    def help_of(self, name):
        words = name.split()
        folder = BUILD / "bin" if (BUILD / "bin" / words[0]).exists() else SOURCE
        done = subprocess.run([folder / words[0], *words[1:], "--help"], cwd=SOURCE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, f"{name} --help:\n{done.stdout}")
        return done.stdout

    def test_name_only_programs_and_flags_that_exist(self):
        seen = set()
        for page, line in command_lines():
            words = line.split()
            name = program_of(words)
            seen.add(name)
            with self.subTest(page=str(page), line=line):
                self.assertIn(name, KNOWN, f"say in {pathlib.Path(__file__).name} how it is run")
                flags = re.findall(r"(?<![\w-])--?[a-z][\w-]*", " ".join(words[1:]))
                if name in NEEDS_MORE or NO_HELP.fullmatch(name) or (name in SLOW and name.startswith("bench") and not (BUILD / "bin" / name).exists()):
                    continue
                for flag in set(flags) - {"--help"} - PASSED_ON.get(name, set()):
                    self.assertRegex(self.help_of(name), rf"(?<![\w-]){flag}(?![\w-])")
        self.assertEqual(KNOWN.keys() - seen, set(), "no document names them any more")

    def test_rely_on_tests_that_exist(self):
        listed = subprocess.run(["ctest", "-N"], cwd=BUILD, capture_output=True, text=True, check=True).stdout
        for name, test in ELSEWHERE.items():
            self.assertRegex(listed, rf": {re.escape(test)}\n", name)


class Run(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.root = pathlib.Path(cls.folder.name)
        (cls.root / "build/release").mkdir(parents=True)
        for name in ("bin", "python"):
            (cls.root / "build/release" / name).symlink_to(BUILD / name)
        for name in ("setup", "examples", "tests", "dashboards", "docs", "README.md"):
            (cls.root / name).symlink_to(SOURCE / name)
        cls.environment = os.environ | {"PATH": f"{BUILD}/bin:{os.environ['PATH']}"}

    def run_line(self, line):
        line = line.replace("LIVE", "runs/live").replace("OVER", "runs/over")
        try:
            done = subprocess.run(line.split(), cwd=self.root, env=self.environment, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=900)
        except subprocess.TimeoutExpired as expired:
            raise AssertionError(f"{line} did not end:\n{expired.stdout}") from None
        self.assertEqual(done.returncode, 0, f"{line}:\n{done.stdout[-4000:]}")
        return done.stdout

    def record(self):
        self.run_line(f"{TRAINER} --steps 400 --every 10 --wait on --run-dir runs/over")


class Fast(Run):
    def test_commands(self):
        self.record()
        said = self.root / "said"  # a pipe that is full would stop it
        with open(said, "w") as out:
            live = subprocess.Popen(f"{TRAINER} --steps 100000000 --every 500 --run-dir runs/live".split(), cwd=self.root, env=self.environment, stdout=out)
        try:
            eventually(lambda: "\nsnapshot" in said.read_text())
            for line in FAST.values():
                if line:
                    with self.subTest(line=line):
                        self.run_line(line)
        finally:
            live.kill()
            live.wait()

    def test_serve(self):
        self.record()
        server = subprocess.Popen(["ptqwatch", "serve", "runs/over", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"], cwd=self.root,
                                  env=self.environment, stdout=subprocess.PIPE, text=True)
        try:
            self.assertRegex(server.stdout.readline() + server.stdout.readline(), r"metrics http://127\.0\.0\.1:\d+/metrics\ngrpc 127\.0\.0\.1:\d+\n")
            server.send_signal(signal.SIGTERM)
            self.assertEqual(server.wait(30), 0)
        finally:
            server.kill()
            server.wait()
            server.stdout.close()


class Slow(Run):
    def test_commands(self):
        self.record()
        built = subprocess.run(["cmake", "--build", BUILD, "-j", os.environ.get("PTQWATCH_JOBS", "2"), "--target", "benchmarks"],
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertEqual(built.returncode, 0, built.stdout[-4000:])
        for line in SLOW.values():
            with self.subTest(line=line):
                self.run_line(line)


if __name__ == "__main__":
    groups = {"Fast": ["Documents", "Fast"], "Slow": ["Slow"]}
    unittest.main(argv=[sys.argv[0], *groups[sys.argv[2]], *sys.argv[3:]], verbosity=2)
