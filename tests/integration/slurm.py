#!/usr/bin/env python3
"""Debian's Slurm for tests: one node, with munged, slurmctld and slurmd in a folder of its own, as this user.

    slurm.py    downloads the packages and unpacks them into ~/.cache/ptqwatch/slurm. Installed, they would start at every boot."""

import getpass
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from trainer import CACHE

ROOT = pathlib.Path(CACHE) / "slurm"
PROGRAMS = ("slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins", "munge")
LIBRARIES = ROOT / f"usr/lib/{os.uname().machine}-linux-gnu"


def missing():
    """What keeps a cluster from being started; empty if nothing does."""
    return "" if (ROOT / "usr/sbin/slurmctld-wlm").exists() else f"there is no {ROOT}; tests/integration/slurm.py makes it"


def unpack():
    """The packages, and those that they depend on and this machine does not have."""
    listed = subprocess.run(["apt-get", "-s", "install", "--no-install-recommends", *PROGRAMS], capture_output=True, text=True, check=True).stdout
    packages = [line.split()[1] for line in listed.splitlines() if line.startswith("Inst ")]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["apt-get", "download", *packages], cwd=folder, check=True)
        partial = ROOT.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        for package in pathlib.Path(folder).glob("*.deb"):
            subprocess.run(["dpkg", "-x", package, partial], check=True)
    shutil.rmtree(ROOT, ignore_errors=True)
    partial.rename(ROOT)


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in sockets]
    for listener in sockets:
        listener.close()
    return ports


class Cluster:
    def __init__(self, folder, environment):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(mode=0o700)
        self.daemons = []
        paths = [ROOT / "usr/bin", ROOT / "usr/sbin"]
        self.environment = {**environment, "PATH": ":".join(map(str, paths)) + ":" + environment["PATH"], "SLURM_CONF": str(self.folder / "slurm.conf"),
                            "LD_LIBRARY_PATH": f"{LIBRARIES}/slurm-wlm:{LIBRARIES}"}

    def configure(self):
        host = socket.gethostname().split(".")[0]
        controller, node = free_ports(2)
        (self.folder / "munge.key").write_bytes(os.urandom(128))
        (self.folder / "munge.key").chmod(0o600)
        settings = {
            "ClusterName": "test", "SlurmctldHost": f"{host}(127.0.0.1)", "SlurmctldPort": controller, "SlurmdPort": node,
            "SlurmUser": getpass.getuser(), "SlurmdUser": getpass.getuser(), "AuthType": "auth/munge", "CredType": "cred/munge",
            "AuthInfo": f"socket={self.folder}/munge.socket", "PluginDir": f"{LIBRARIES}/slurm-wlm", "StateSaveLocation": self.folder / "state",
            "SlurmdSpoolDir": self.folder / "spool", "SlurmctldPidFile": self.folder / "slurmctld.pid", "SlurmdPidFile": self.folder / "slurmd.pid",
            "ProctrackType": "proctrack/pgid", "TaskPlugin": "task/none", "SchedulerType": "sched/builtin", "SelectType": "select/cons_tres",
            "SelectTypeParameters": "CR_Core", "JobAcctGatherType": "jobacct_gather/none", "AccountingStorageType": "accounting_storage/none",
            "MpiDefault": "none", "ReturnToService": 2, "SwitchType": "switch/none", "LaunchParameters": "enable_nss_slurm", "SlurmdTimeout": 60}
        lines = [f"{name}={value}" for name, value in settings.items()]
        lines += [f"NodeName={host} NodeAddr=127.0.0.1 CPUs={os.cpu_count()} State=UNKNOWN",
                  f"PartitionName=test Nodes={host} Default=YES MaxTime=INFINITE State=UP"]
        (self.folder / "slurm.conf").write_text("\n".join(lines) + "\n")
        for name in ("state", "spool"):
            (self.folder / name).mkdir()

    def start(self, *command):
        with open(self.folder / f"{command[0]}.log", "wb") as log:
            self.daemons.append(subprocess.Popen(command, cwd=self.folder, env=self.environment, stdout=log, stderr=log, start_new_session=True))

    def run(self, *command, folder=None):
        done = subprocess.run(command, cwd=folder or self.folder, env=self.environment, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode != 0:
            logs = "".join(f"\n{path.name}:\n{path.read_text()[-3000:]}" for path in sorted(self.folder.glob("*.log")))
            raise AssertionError(f"{' '.join(command)}: {done.stdout}{done.stderr}{logs}")
        return done.stdout

    def wait(self, command, expected, seconds):
        """Until the command prints this."""
        deadline = time.monotonic() + seconds
        while (said := subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=60, check=False).stdout.strip()) != expected:
            if time.monotonic() > deadline:
                self.run("false")  # raises, with the logs
            time.sleep(0.2)
        return said

    def wait_for_jobs(self, seconds=200):
        self.wait(["squeue", "--noheader"], "", seconds)

    def __enter__(self):
        try:
            self.configure()
            self.start("munged", "--foreground", "--force", f"--key-file={self.folder}/munge.key", f"--socket={self.folder}/munge.socket",
                       f"--pid-file={self.folder}/munged.pid", f"--seed-file={self.folder}/munged.seed", f"--log-file={self.folder}/munged-own.log")
            self.wait(["sh", "-c", f"test -S {self.folder}/munge.socket && echo there"], "there", 20)
            self.start("slurmctld-wlm", "-D")
            self.start("slurmd-wlm", "-D", "-d", str(ROOT / "usr/sbin/slurmstepd-wlm"))
            self.wait(["sinfo", "--noheader", "--format=%T"], "idle", 60)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for daemon in reversed(self.daemons):
            os.killpg(daemon.pid, signal.SIGTERM)
        for daemon in self.daemons:
            try:
                daemon.wait(timeout=20)
            except subprocess.TimeoutExpired:
                os.killpg(daemon.pid, signal.SIGKILL)
                daemon.wait()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(__doc__)
    unpack()
    print(ROOT)
