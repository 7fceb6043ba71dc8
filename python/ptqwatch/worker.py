"""The process that measures, beside a trainer: python -m ptqwatch.worker TRAINER_PID. PTQWATCH_REPLACES in the environment says
why the one before ended.

Started by ptqwatch.watch(), with these descriptors: 3 the shared memory, 4 its wake-up, 5 the channel, 6 the settings, 7 the newest
report, 8 the trainer's pidfd. It ends with the trainer, whatever the trainer's end: nothing is finished then.
"""

import collections
import json
import mmap
import os
import pickle
import signal
import socket
import sys
import threading
import time
import traceback

import torch

from ptqwatch import _channel, _native, _package, _process
from ptqwatch._subject import ModelAdapter

_MEMORY, _WAKE, _CHANNEL, _SETTINGS, _REPORT, _TRAINER = range(3, 9)
# How often a new report is looked for.
_LOOK_SECONDS = 0.1


def _step_back():
    """First in line when memory runs out. Ctrl-C and a batch system's signals are meant for the trainer."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
    except OSError:
        pass


def _yield_to_training():
    """The lowest priority at which this thread still runs on busy cores. It works for microseconds; the thread that measures has the
    priority that the library gives it.
    """
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
    try:
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    except OSError:
        pass


def _settings():
    with mmap.mmap(_SETTINGS, 0, prot=mmap.PROT_READ) as memory:
        return pickle.loads(memory[:])


def _is_open(file):
    try:
        os.fstat(file)
    except OSError:
        return False
    return True


class _Worker:
    """Serves the trainer's requests on the main thread. The monitor's own threads measure."""

    def __init__(self, channel, link, native, alarms):
        self._channel = channel
        self._link = link
        self._native = native
        self._alarms = alarms
        self._sending = threading.Lock()
        self._idle = []
        self._cancel = _native.CancelToken()
        self._finishing = None
        self._newest = _channel.Newest(_REPORT)
        self._sent = 0

    def serve(self):
        while True:
            if not _channel.wait(self._channel, _LOOK_SECONDS):
                os._exit(0)  # the trainer's process runs another program (exec)
            for request in _channel.receive(self._channel):
                # A request that an earlier worker left unread is not for this one.
                if request["worker"] == os.getpid():
                    getattr(self, f"_do_{request['do']}")(request)
            self._send_news()

    def _answer(self, request, **answer):
        _channel.send(self._channel, {"answer": request["number"], **answer})

    def _send_news(self):
        """The newest report, unless the trainer has it, and alarms. If there is no room, the next look tries again."""
        with self._sending:
            sequence = self._native.sequence()
            # Sequence numbers begin again with a worker that has no run directory.
            if sequence != self._sent and self._newest.write(time.monotonic_ns(), self._native.latest()):
                self._sent = sequence
            while self._alarms and _channel.post(self._channel, self._alarms[0]):
                self._alarms.popleft()
                self._link.count_alarm()

    def _do_finish(self, request):
        self._cancel.cancel()  # the trainer no longer waits for an earlier one
        self._cancel = cancel = _native.CancelToken()
        earlier = self._finishing

        def finish():
            if earlier is not None:
                earlier.join()  # because other ranks count the ends of both
            reason = self._native.finish(request["timeout"], cancel)
            self._send_news()
            self._answer(request, reason=reason)

        self._finishing = threading.Thread(target=finish, name="ptqwatch-finish", daemon=True)
        self._finishing.start()

    def _do_cancel(self, request):
        self._cancel.cancel()

    def _do_status(self, request):
        self._answer(request, status=json.loads(self._native.status())["status"])

    def _do_idle(self, request):
        if request["change"] > 0:
            self._idle.append(self._native.idle())
        elif self._idle:
            self._idle.pop().end()

    def _do_stop(self, request):
        self._cancel.cancel()
        self._link.stop()
        self._native.stop(request["timeout"])
        os._exit(0)


def _run(link):
    _yield_to_training()
    link.run()


def main():
    _step_back()
    trainer, replaces = int(sys.argv[1]), os.environ.get("PTQWATCH_REPLACES", "")
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    _process.in_worker = True
    channel = socket.socket(fileno=_CHANNEL)
    channel.setblocking(False)
    settings = _settings()
    link = _native.WorkerLink(_MEMORY, _WAKE, _TRAINER if _is_open(_TRAINER) else -1, trainer, replaces)
    alarms = collections.deque()
    threading.Thread(target=_run, args=(link,), name="ptqwatch-link", daemon=True).start()
    try:
        _package.enter(settings["surroundings"])
        build, losses, structure, train_step = _package.unpack(settings["parts"])
        adapter = ModelAdapter(torch.nn.Module(), build, losses, structure, train_step=train_step,
                               named_optimizer=settings["named_optimizer"])
        options = dict(settings["options"])
        if settings["alarms"]:
            options["on_alert"] = lambda report: alarms.append(_channel.encode({"alarm": report}))
        native = _native.Monitor(adapter, *settings["batches"], options, link)
        adapter.created()
        failure, description = native.failure(), native.describe()
    except BaseException as error:  # SystemExit, too: a script that trains when it is imported may raise it
        traceback.print_exc()
        native, failure, description = None, f"{type(error).__name__}: {error}", ""
    if failure and replaces:
        os._exit(1)  # the first worker did not fail, so another one may not either
    _channel.send(channel, {"ready": os.getpid(), "failure": failure, "description": description})
    if native is None:
        os._exit(_process.FAILED_STATUS)
    _yield_to_training()  # which waited for the first worker
    _Worker(channel, link, native, alarms).serve()


if __name__ == "__main__":
    main()
