"""Launches of shard_fault_trainer.py, for tests."""

import json
import os
import pathlib
import signal

from conftest import eventually

HERE = pathlib.Path(__file__).resolve().parent


class Launch:
    """The ranks of one launch, on as many hosts as it says. Each has a working directory that no other process has."""

    def __init__(self, forks, folder, run_dir, ranks, hosts=1, **options):
        self.folder, self.run_dir, self.ranks = folder, run_dir, ranks
        self.measured = run_dir / "rank-0000" if (run_dir / "rank-0000").exists() or hosts > 1 else run_dir
        folder.mkdir()
        self.options = {"ranks": ranks, "store": str(folder / "store"), "run_dir": str(run_dir), "layout": "fsdp" if ranks > 1 else "plain", "first": 1,
                        "every": 2, "alone": [0, 0], "pauses": [], "signals": [], "memory": None, "finish": 100.0, "early": [0.0], "worker": None, "serve": False,
                        **options}
        environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])}
        self.processes = []
        local = ranks // hosts
        for rank in range(ranks):
            if hosts > 1:
                environment |= {"LOCAL_RANK": str(rank % local), "LOCAL_WORLD_SIZE": str(local), "GROUP_RANK": str(rank // local)}
            with open(os.devnull) as nothing, open(folder / f"{rank}.out", "w") as out, open(folder / f"{rank}.err", "w") as err:
                self.processes.append(forks.start([HERE / "shard_fault_trainer.py", str(folder), str(rank), json.dumps(self.options)], folder,
                                                  environment, [nothing.fileno(), out.fileno(), err.fileno()]))

    def errors(self, rank):
        return (self.folder / f"{rank}.err").read_text()

    def await_pause(self, rank, step):
        eventually((self.folder / f"at-{rank}-{step}").exists)

    def go_on(self, rank, step):
        (self.folder / f"go-{rank}-{step}").touch()

    def end(self, killed=()):
        """What each rank printed; None for those that are killed."""
        for rank, process in enumerate(self.processes):
            assert process.wait() == (-signal.SIGKILL if rank in killed else 0), self.errors(rank)
        return [None if rank in killed else json.loads((self.folder / f"{rank}.out").read_text()) for rank in range(self.ranks)]

    def steps(self):
        """Those of the reports."""
        return [entry["step"] for entry in self._journal() if "event" not in entry]

    def _journal(self):
        path = self.measured / "journal.jsonl"
        lines = path.read_text().split("\n")[:-1] if path.exists() else []  # the last may be half a line
        return [json.loads(line) for line in lines if line.strip()]

    def events(self):
        """Their messages."""
        return [entry["event"]["message"] for entry in self._journal() if "event" in entry]

    def status(self):
        return json.loads((self.measured / "status.json").read_text())

    def others(self):
        """The processes beside the ranks that the launch has made."""
        found = []
        for status in pathlib.Path("/proc").glob("[0-9]*/cwd"):
            try:
                if os.readlink(status) == str(self.folder):
                    found.append(int(status.parent.name))
            except OSError:
                continue
        return set(found) - {process.pid for process in self.processes}

    def worker(self, rank):
        """The process that this rank has started; None if there is none."""
        for process in self.others():
            arguments = pathlib.Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
            if b"ptqwatch.worker" in arguments and str(self.processes[rank].pid).encode() in arguments:
                return process
        return None

    def server(self):
        """The process that serves the run; None if there is none."""
        for arguments in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = arguments.read_bytes().split(b"\0")
            except OSError:
                continue
            if b"serve" in words and str(self.measured).encode() in words:
                return int(arguments.parent.name)
        return None

    def clear(self):
        for process in self.processes:
            process.kill()
        for process in self.others():
            os.kill(process, signal.SIGKILL)


def state_of(process):
    """As of ps; empty if it has ended."""
    try:
        return pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return ""
