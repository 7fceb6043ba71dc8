#!/usr/bin/env python3
"""Does tests/cuda/run tell what happened, whatever happens?   run_test.py   With programs of our own in the place of those that need a GPU."""

import importlib.machinery
import importlib.util
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import types
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "integration"))
from beside import eventually

RUN = pathlib.Path(__file__).with_name("run")
GPU = "echo BM_Gram/1024"
PASSING = """case "$*" in
  *--gtest_list_tests*) printf 'Suite.\\n  First\\n  Second\\n  DISABLED_Third\\n' ;;
  *) echo '[ RUN      ] Suite.First'; echo '[       OK ] Suite.First (1 ms)'; echo '[  PASSED  ] 1 test.' ;;
esac"""
HANGING = "echo '[ RUN      ] Suite.First'; echo '[       OK ] Suite.First (1 ms)'; echo '[ RUN      ] Suite.Second'; sleep 600"
PROGRAMS = ("twin_test", "cuda_test", "monitor_cuda_test", "api_trace_test", "bench_foreign", "stall_test")


def ended(pid):
    """Whether the process is gone, or was killed and waits for its parent."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


class RunTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.home = pathlib.Path(self.folder.name)
        (self.home / "bin").mkdir()
        self.report = self.home / "report.md"
        self.program("bench_cuda", GPU)
        for name in PROGRAMS:
            self.program(name, PASSING)
        self.program("compute-sanitizer", 'echo "========= ERROR SUMMARY: 0 errors"; echo "$@"')

    def program(self, name, script):
        path = self.home / "bin" / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def command(self, *arguments):
        return [sys.executable, str(RUN), str(self.home), str(self.report), *arguments]

    def environment(self):
        return {**os.environ, "PATH": f"{self.home / 'bin'}:/usr/bin:/bin"}

    def run_it(self, *arguments):
        return subprocess.run(self.command(*arguments), env=self.environment(), capture_output=True, text=True, timeout=60)

    def row(self, name):
        for line in self.report.read_text().splitlines():
            if line.startswith(f"| {name} |"):
                return [cell.strip() for cell in line.strip("|").split("|")][1:]
        self.fail(f"no row {name} in {self.report.read_text()}")

    def test_what_did_not_run_on_the_gpu_is_a_failure(self):
        self.program("cuda_test", "echo '[  PASSED  ] 0 tests.'; echo '[  SKIPPED ] 2 tests, listed below:'")
        self.program("monitor_cuda_test", PASSING + "\necho 'ptqwatch: warning: weights are quantized on the CPU: no memory' >&2")
        self.assertEqual(self.run_it().returncode, 1)
        self.assertEqual([self.row(name)[0] for name in ("twin test", "cuda_test", "monitor_cuda_test")], ["ok", "FAILED", "FAILED"])

    def test_only_some_steps(self):
        self.assertEqual(self.run_it("--only", "twin test,stalls").returncode, 0)
        self.assertEqual(self.report.read_text().count("| ok |"), 2)
        wrong = self.run_it("--only", "twins")
        self.assertEqual(wrong.returncode, 2)
        self.assertIn("there is no step 'twins': facts, twin test", wrong.stderr)

    def test_all_well(self):
        done = self.run_it()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for name in ("facts", "twin test", "cuda_test", "bench_cuda", "monitor_cuda_test", "API trace", "compute-sanitizer", "stalls"):
            self.assertEqual(self.row(name)[0], "ok", done.stdout)
        self.assertEqual(self.row("monitor_cuda_test")[1], "3 passed")
        log = (self.home / "report.log").read_text()
        self.assertIn("--gtest_filter=Suite.DISABLED_Third", log)
        self.assertIn("--kernel-regex kns=Entry", log)
        self.assertIn(self.report.read_text(), done.stdout)

    def test_without_a_gpu(self):
        self.program("bench_cuda", "echo no GPU")
        done = self.run_it()
        self.assertEqual((done.returncode, done.stdout.strip()), (77, "there is no GPU"))

    def test_a_gpu_that_cannot_be_used(self):
        self.program("bench_cuda", "echo UNAVAILABLE: the driver is too old; exit 1")
        done = self.run_it()
        self.assertEqual(done.returncode, 1)
        self.assertIn("the driver is too old", done.stdout)

    def test_a_step_that_fails_is_named_and_the_others_run(self):
        self.program("cuda_test", "echo '[  FAILED  ] Suite.First'; exit 1")
        done = self.run_it()
        self.assertEqual(done.returncode, 1)
        self.assertEqual(self.row("cuda_test")[:2], ["FAILED", "0 passed, failed: Suite.First"])
        self.assertEqual(self.row("stalls")[0], "ok")

    def test_a_step_that_hangs_is_ended_with_its_children(self):
        self.program("cuda_test", f"echo $$ >{self.home}/pid; {HANGING}")
        # So little time that each step gets only the rest of the earlier ones.
        begin = time.monotonic()
        done = self.run_it("--budget", "4")
        self.assertLess(time.monotonic() - begin, 30)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(self.row("cuda_test")[:2], ["TIMEOUT", "1 passed, the last to begin: Suite.Second"])
        self.assertEqual(self.row("stalls")[:2], ["LEFT OUT", "no time was left"])
        eventually(lambda: ended(int((self.home / "pid").read_text())))

    def killed_in_cuda_test(self, how):
        self.program("cuda_test", f"echo begun; sleep 600 & echo $! >{self.home}/child; wait")
        os.mkfifo(self.home / "child")
        child = subprocess.Popen(self.command(), env=self.environment(), stdout=subprocess.DEVNULL)
        grandchild = int((self.home / "child").read_text())
        child.send_signal(how)
        child.wait(timeout=30)
        self.assertEqual(self.row("twin test")[0], "ok")
        self.assertEqual(self.row("cuda_test")[0], "running")
        self.assertEqual(self.row("bench_cuda")[0], "not begun")
        self.assertIn("begun", (self.home / "report.log").read_text())
        return grandchild

    def test_a_run_that_is_ended_says_how_far_it_came(self):
        grandchild = self.killed_in_cuda_test(signal.SIGTERM)
        eventually(lambda: ended(grandchild))

    def test_a_signal_while_a_step_is_started_leaves_no_process(self):
        loader = importlib.machinery.SourceFileLoader("cuda_run", str(RUN))
        module = importlib.util.module_from_spec(importlib.util.spec_from_loader("cuda_run", loader))
        loader.exec_module(module)
        before = signal.signal(signal.SIGTERM, module.END.ask)
        started = []

        def start(*arguments, **names):
            started.append(subprocess.Popen(*arguments, **names))
            signal.raise_signal(signal.SIGTERM)
            return started[0]

        module.subprocess = types.SimpleNamespace(**{**vars(subprocess), "Popen": start})
        try:
            with tempfile.NamedTemporaryFile() as log, self.assertRaises(SystemExit):
                module.Bench(str(self.home), log).run(["sleep", "600"], 600)
        finally:
            signal.signal(signal.SIGTERM, before)
        self.assertEqual(started[0].poll(), -signal.SIGKILL)

    def test_a_run_that_is_killed_says_how_far_it_came(self):
        grandchild = self.killed_in_cuda_test(signal.SIGKILL)
        os.kill(grandchild, signal.SIGKILL)  # no other process ends it

    def test_what_is_missing_is_left_out(self):
        (self.home / "bin" / "compute-sanitizer").unlink()
        (self.home / "bin" / "api_trace_test").unlink()
        if pathlib.Path("/usr/local/cuda/bin/compute-sanitizer").exists():
            self.skipTest("compute-sanitizer is installed")
        done = self.run_it()
        self.assertEqual(done.returncode, 1)
        self.assertEqual(self.row("compute-sanitizer")[:2], ["LEFT OUT", "compute-sanitizer is not installed"])
        self.assertEqual(self.row("API trace")[:2], ["LEFT OUT", "api_trace_test is not there"])
        self.assertEqual(self.row("stalls")[0], "ok")

    def test_a_sanitizer_that_finds_something(self):
        self.program("compute-sanitizer", "echo '========= RACECHECK SUMMARY: 3 hazards displayed'; exit 99")
        done = self.run_it()
        self.assertEqual(done.returncode, 1)
        self.assertEqual(self.row("compute-sanitizer")[0], "FAILED")
        self.assertIn("racecheck: RACECHECK SUMMARY: 3 hazards", self.row("compute-sanitizer")[1])

    def test_a_pack_runs_through_its_wrapper(self):
        wrapper = self.home / "with_libraries"
        wrapper.write_text('#!/bin/sh\necho through the wrapper\nexec "$@"\n')
        wrapper.chmod(0o755)
        done = self.run_it()
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("through the wrapper", (self.home / "report.log").read_text())


if __name__ == "__main__":
    unittest.main()
