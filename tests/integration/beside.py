"""The server that a trainer has started beside itself, as /proc shows it."""

import contextlib
import os
import pathlib
import re
import time


def eventually(condition, what="in time", seconds=60):
    """The first true value of condition(). `what` explains a failure, as text or a function."""
    until = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > until:
            raise AssertionError(f"not within {seconds} s: {what() if callable(what) else what}")
        time.sleep(0.02)
    return found


def inet_sockets(process):
    """The inodes of a process's sockets that are TCP or UDP, v4 or v6."""
    inodes = set()
    for name in ("tcp", "tcp6", "udp", "udp6"):
        lines = pathlib.Path(f"/proc/net/{name}").read_text().splitlines()[1:]
        inodes |= {line.split()[9] for line in lines}
    held = set()
    for file in pathlib.Path(f"/proc/{process}/fd").iterdir():
        with contextlib.suppress(OSError):
            if found := re.fullmatch(r"socket:\[(\d+)\]", os.readlink(file)):
                held.add(found[1])
    return held & inodes


def server_of(trainer):
    """The process id of the server that watches this trainer, or None."""
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"--beside={trainer}".encode() in (folder / "cmdline").read_bytes().split(b"\0"):
                return int(folder.name)
    return None


def children_of(process):
    """The process ids of the children, zombies too."""
    children = pathlib.Path(f"/proc/{process}/task").glob("*/children")
    return [int(child) for task in children for child in task.read_text().split()]


def resident_bytes(process):
    """The memory of a process in RAM; 0 for a zombie, which has none."""
    status = pathlib.Path(f"/proc/{process}/status").read_text(encoding="ascii", errors="replace")
    resident = re.search(r"^VmRSS:\s*(\d+)", status, re.MULTILINE)
    return 1024 * int(resident[1]) if resident else 0
