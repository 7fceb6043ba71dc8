#!/usr/bin/env python3
"""Trainers and machines on which a server beside the run is hard to start or to keep: training gives the same bits, no child is left, and
the log says what to do.

usage: boundary_test.py RUN_TRAINER PTQWATCH FAULTY_DISK [unittest arguments]
"""

import ctypes
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
import urllib.error
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))
from beside import children_of, eventually, server_of  # noqa: E402
from trainer import Trainer, weights  # noqa: E402

RUN_TRAINER = PTQWATCH = FAULTY_DISK = None
STEPS = ["--steps", "300", "--every", "20"]
PR_SET_CHILD_SUBREAPER = 36


def get(url):
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as answer:
        return answer.code, answer.read().decode()
    except OSError:
        return None, ""


class Served(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.run_dir = str(self.folder / "run")

    def start(self, *flags, command=(), env=None, before=None):
        """Starts a trainer with a server; it runs until it gets SIGTERM."""
        argv = [*command, RUN_TRAINER, *STEPS, "--serve", "on", "--linger", "on", "--run-dir", self.run_dir, *flags]
        return self.enterContext(Trainer(*argv, short=False, env=env, before=before))

    def end(self, trainer, process=None, command=()):
        """Ends the trainer and returns its output. `process`: its process, if another program started it."""
        trainer.wait_for(r"^weights ")
        os.kill(process or trainer.process.pid, signal.SIGTERM)
        code, out, err = trainer.finish(timeout=60)
        self.assertEqual(code, 143, err)
        alone = subprocess.run([*command, RUN_TRAINER, *STEPS, "--monitor", "off"], text=True, capture_output=True, timeout=120, check=True)
        self.assertEqual(weights(out), weights(alone.stdout))
        return out, err

    def survives_a_kill(self, trainer, process, named=None, left=0):
        """Checks that the server is started again and that the former one leaves no zombie. `named`: the trainer's id for the server."""
        page = trainer.wait_for(r"^metrics (http://\S+)$")[1]
        first = eventually(lambda: server_of(named or process))
        os.kill(first, signal.SIGKILL)
        eventually(lambda: server_of(named or process) not in (None, first) and get(page)[0] == 200)
        eventually(lambda: len(children_of(process)) <= left, "no zombie")

    def fails(self, says, *flags, **how):
        """Checks that the run is not served, and that the log says why and what to type."""
        trainer = self.start(*flags, **how)
        out, err = self.end(trainer)
        self.assertRegex(err, says)
        self.assertRegex(err, f"to serve it: ptqwatch serve {self.run_dir}")
        self.assertIn("\nserver failed ", out)
        self.assertEqual(out.count("metrics http"), 0)
        return err


class Processes(Served):
    def test_trainer_waits_for_every_child(self):
        trainer = self.start("--reaps", "on")
        self.survives_a_kill(trainer, trainer.process.pid)
        out, _ = self.end(trainer)
        self.assertRegex(out, "(?m)^server serving restarts [1-9]")

    def test_trainer_ignores_sigchld(self):
        trainer = self.start(before=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
        self.survives_a_kill(trainer, trainer.process.pid)
        self.end(trainer)

    def test_trainer_is_a_subreaper(self):
        libc = ctypes.CDLL(None)
        trainer = self.start(before=lambda: libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
        self.survives_a_kill(trainer, trainer.process.pid, left=1)
        self.end(trainer)

    def test_trainer_is_process_1(self):
        unshare = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
        if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode != 0:
            self.skipTest("a namespace of processes needs more rights")
        trainer = self.start(command=unshare)
        trainer.wait_for(r"^report ")
        process, = children_of(trainer.process.pid)
        self.survives_a_kill(trainer, process, named=1, left=1)
        self.end(trainer, process)

    def test_library_path_of_the_trainer(self):
        libraries = subprocess.run(["ldd", RUN_TRAINER], text=True, capture_output=True, check=True).stdout
        torch = os.path.dirname(re.search(r"libtorch_cpu\.so => (\S+)", libraries)[1])
        trainer = self.start(env={"LD_LIBRARY_PATH": torch, "LD_PRELOAD": os.path.join(torch, "libc10.so"), "OMP_NUM_THREADS": "1"})
        page = trainer.wait_for(r"^metrics (http://\S+)$")[1]
        eventually(lambda: get(page)[0] == 200)
        server = server_of(trainer.process.pid)
        self.assertNotIn("libc10", pathlib.Path(f"/proc/{server}/maps").read_text())
        self.assertNotRegex(pathlib.Path(f"/proc/{server}/environ").read_text(), "LD_|OMP_")
        self.end(trainer)

    def test_environment_of_mpirun(self):
        rank = {"OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_SIZE": "8", "PMIX_RANK": "5", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}
        first = self.start(env=rank)
        first.wait_for(r"^metrics http")
        self.assertNotRegex(pathlib.Path(f"/proc/{server_of(first.process.pid)}/environ").read_text(), "OMPI|PMIX")
        self.run_dir = str(self.folder / "other")
        second = self.start(env={**rank, "OMPI_COMM_WORLD_LOCAL_RANK": "1"})
        out, _ = self.end(second)
        self.assertIn("\nserver none restarts 0\n", out)
        self.end(first)

    def test_program_is_not_installed(self):
        alone = self.folder / "trainer"
        shutil.copy(RUN_TRAINER, alone)
        trainer = self.enterContext(Trainer(str(alone), *STEPS, "--serve", "on", "--linger", "on", "--run-dir", self.run_dir, short=False,
                                            env={"PATH": "/nowhere"}))
        _, err = self.end(trainer)
        self.assertRegex(err, "no program `ptqwatch` .*: build the target `ptqwatch`, install the package `ptqwatch`, or set")
        self.assertIn(f"to serve it: ptqwatch serve {self.run_dir}", err)

    def test_program_of_another_version(self):
        other = self.folder / "ptqwatch"
        hello = {"version": "99.1.0", "journal_schema": 1, "pid": 1, "http": "127.0.0.1:1", "grpc": "", "error": ""}
        # Ends with its trainer, as a server does.
        other.write_text(f"#!/bin/sh\necho '{json.dumps(hello)}' >&3\n"
                         'for word; do case "$word" in --beside=*) exec tail --pid="${word#*=}" -f /dev/null ;; esac; done\n')
        other.chmod(0o755)
        self.fails(r"is version 99\.1\.0, and this library is [\d.]+: set ServeOptions.program to one of this version",
                   env={"PTQWATCH_PROGRAM": str(other)})

    def test_no_proc(self):
        hide = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh"]
        if subprocess.run([*hide, "true"], capture_output=True, check=False).returncode != 0:
            self.skipTest("a namespace of mounts needs more rights")
        trainer = self.start(command=hide, env={"PTQWATCH_PROGRAM": PTQWATCH})
        self.survives_a_kill(trainer, trainer.process.pid)
        self.end(trainer, command=hide)  # without /proc/cpuinfo LibTorch computes differently

    def test_no_process_is_left(self):
        # RLIMIT_NPROC or the limit of a cgroup makes posix_spawn fail with EAGAIN.
        self.fails("cannot start '.*ptqwatch': .*Resource temporarily unavailable", env={"LD_PRELOAD": FAULTY_DISK, "FAULTY_SPAWN": "1"})

    def test_run_directory_cannot_be_written(self):
        self.run_dir = "/proc/nowhere/run"
        err = self.fails("nothing is measured: .*'/proc/nowhere/run'")
        self.assertIn("no server beside this run", err)


class Disk(Served):
    """The server keeps serving its last data, marked as old."""

    def stalls(self, letter):
        mode = self.folder / "mode"
        mode.write_text("-")
        trainer = self.start(env={"LD_PRELOAD": FAULTY_DISK, "FAULTY_DISK": self.run_dir, "FAULTY_DISK_MODE": str(mode)})
        page = trainer.wait_for(r"^metrics (http://\S+)$")[1]
        readyz = page.replace("/metrics", "/readyz")
        eventually(lambda: get(readyz)[0] == 200 and "\nptqwatch_snapshot_step " in get(page)[1])
        with open(mode, "r+", encoding="ascii") as file:
            file.write(letter)
        eventually(lambda: "journal not written since" in get(readyz)[1])
        self.assertEqual(get(readyz)[0], 503)
        self.assertEqual(get(page)[0], 200)
        with open(mode, "r+", encoding="ascii") as file:
            file.write("-")
        eventually(lambda: get(readyz)[0] == 200)
        self.end(trainer)

    def test_full(self):
        self.stalls("f")

    def test_hangs(self):
        self.stalls("h")


if __name__ == "__main__":
    RUN_TRAINER, PTQWATCH, FAULTY_DISK = sys.argv[1:4]
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]], verbosity=2)
