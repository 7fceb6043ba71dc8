"""Python processes for tests, forked from one that has imported torch and ptqwatch already: importing takes most of a short process's
time. Each runs a script as `python SCRIPT` does: it is __main__, in a session of its own, and the interpreter ends as it always does.

    forks = forks.Forks()
    process = forks.start([script, *arguments], folder, environment, stdin=..., stdout=..., stderr=...)
    status = process.wait()

A process that hangs prints where, and exits with status 1. This limit ends when the process forks.
"""

import faulthandler
import gc
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys

_MOST_BYTES = 1 << 20
_MOST_SECONDS = 300


class Forks:
    """The process that forks. It must not have threads, so it does nothing else."""

    def __init__(self):
        self._end, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = subprocess.Popen([sys.executable, __file__, str(other.fileno())], pass_fds=[other.fileno()])
        other.close()

    def start(self, command, folder, environment, files):
        """`files` are the descriptors 0, 1 and 2 of the new process."""
        request = {"command": [str(word) for word in command], "folder": str(folder), "environment": dict(environment)}
        socket.send_fds(self._end, [json.dumps(request).encode()], files)
        return Fork(self, self._answer())

    def wait(self, process):
        self._end.send(json.dumps({"wait": process}).encode())
        return self._answer()

    def _answer(self):
        data = self._end.recv(_MOST_BYTES)
        if not data:
            raise RuntimeError(f"{__file__} ended: {self._process.wait()}")
        return json.loads(data)

    def close(self):
        self._end.close()
        self._process.wait()


class Fork:
    """One process."""

    def __init__(self, forks, pid):
        self.pid = pid
        self.returncode = None
        self._forks = forks

    def wait(self):
        """Its exit status; -N if signal N ended it."""
        if self.returncode is None:
            self.returncode = self._forks.wait(self.pid)
        return self.returncode

    def kill(self):
        """With all of its session."""
        if self.returncode is None:
            os.killpg(self.pid, signal.SIGKILL)
            self.wait()


def _next_command(end):
    """Returns the command to run in a forked process; never returns in the process that forks."""
    while True:
        data, files, _, _ = socket.recv_fds(end, _MOST_BYTES, 3)
        if not data:
            os._exit(0)
        request = json.loads(data)
        if "wait" in request:
            answer = os.waitstatus_to_exitcode(os.waitpid(request["wait"], 0)[1])
        else:
            answer = os.fork()
            if answer == 0:
                os.setsid()
                for place, file in enumerate(files):
                    os.dup2(file, place)
                    os.close(file)
                return request
            for file in files:
                os.close(file)
        end.send(json.dumps(answer).encode())


def _enter(request):
    """Makes this process the one that was asked for. Returns the code of its script."""
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    script = request["command"][0]
    sys.argv = request["command"]
    sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
    faulthandler.dump_traceback_later(_MOST_SECONDS, exit=True)
    os.register_at_fork(before=faulthandler.cancel_dump_traceback_later)  # or the child would wait for its thread when it ends
    return compile(pathlib.Path(script).read_text(), script, "exec")


if __name__ == "__main__":
    faulthandler.dump_traceback_later(_MOST_SECONDS, exit=True)
    import ptqwatch  # noqa: F401
    import torch

    torch.set_num_threads(1)
    torch.optim.SGD([torch.zeros(1)], lr=1.0)  # imports torch._dynamo, in a second
    faulthandler.cancel_dump_traceback_later()
    gc.collect()
    gc.freeze()  # or the end of each process would copy all of it
    with socket.socket(fileno=int(sys.argv[1])) as _end:
        _request = _next_command(_end)
    __file__ = _request["command"][0]
    exec(_enter(_request))
