"""The monitor in a process of its own: the trainer's side.

The step call copies due snapshots into memory that a worker process shares (python -m ptqwatch.worker). The worker makes the model
and the losses function from their names and runs the library's monitor on that memory. Nothing here waits for the worker but
watch(), finish() and stop(), which say so.
"""

import atexit
import contextlib
import json
import logging
import mmap
import os
import pickle
import shutil
import sys
import time
import weakref

import torch

from ptqwatch import _channel, _native, _package
from ptqwatch._monitor import Monitor, seconds

_log = logging.getLogger("ptqwatch")
_monitors: "weakref.WeakSet[ProcessMonitor]" = weakref.WeakSet()

# Exit status of a worker whose successor would fail in the same way.
FAILED_STATUS = 78
# How many seconds a rank waits in finish() for a process that measures: the pause before a new one, and its start.
_LONGEST_ABSENCE = 120.0
# Set in a worker, where no other monitor is made.
in_worker = False

_WORKER_DEFAULTS = {
    "start_timeout": 120.0,
    "longest_silence": 1800.0,
    "cloudpickle": False,
    "first_pause": 1.0,
    "longest_pause": 60.0,
}


def _named(view):
    return view and {"kind": view["kind"], "unavailable": view["unavailable"]}


def _copied(batches):
    """On the CPU and on their own: a view would be pickled with all of its storage, such as a whole data set."""
    return [[tensor.detach().to("cpu", copy=True) for tensor in batch] for batch in batches]


def _enter_shard(options):
    """This rank's place, whether its host's measuring process is its own, and options for that process."""
    run_dir = options.get("run_dir")
    ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()  # of the default group, which is known here
    shard, measures = _native.enter_shard(*ranks, os.path.abspath(run_dir) if run_dir else "")
    host, hosts = shard[-2:]
    options = {name: value for name, value in options.items() if name not in ("rank", "ranks") and (measures or name != "serve")}
    if hosts > 1:
        options.update(rank=host, ranks=hosts)
    return shard, measures, {**options, "ranks_from_environment": False}


def refuse_on_all_ranks(why, options):
    """Options for the monitor that says so. Ranks of a host share the run directory, in which one of them writes."""
    try:
        shard, measures, options = _enter_shard(options)
    except (RuntimeError, ValueError):  # without a process group, nobody waits
        return options
    _native.refuse_shard(shard, why)
    return options if measures else {name: value for name, value in options.items() if name != "run_dir"}


class ProcessMonitor:
    """Watches one model from a process of its own. watch() makes it. Monitor documents the members.

    worker    settings of the process: `start_timeout`, seconds that watch() waits until the worker measures (then training goes on
              without it); `longest_silence`, seconds without a sign of life from the losses function after which the worker is
              replaced; `cloudpickle`, whether functions go to the worker by value; `first_pause` and `longest_pause`, seconds
              until a worker that ended is started again, doubled each time
    """

    def __init__(self, adapter, build, losses, probe, calibration, curvature, options, worker=None):
        if in_worker:
            raise RuntimeError(
                f"ptqwatch.watch() was called while the monitor's process imported the training script. {_package.GUARD_ADVICE}")
        self._pid = os.getpid()
        self._settings = _settings(worker)
        self._failure = ""
        self._native = None
        self._end = None
        self._pinned = False
        self._ready = {}
        self._answers = {}
        self._newest = None
        self._version = 0
        self._report = None
        self._on_alert = None
        self._alarms = []
        self._alarms_seen = 0
        self._number = 0
        self._stopped = False
        self._temporary = ""  # the run directory, if only the server reads it
        self.step = _ignore
        if os.environ.get("PTQWATCH_DISABLE", "0") not in ("", "0"):
            self._failure = "disabled by PTQWATCH_DISABLE"
            return
        strict = options.get("on_failure") == "error"
        self._shard = None  # the place of this rank if the model is sharded
        self._measures = True  # and not the process of another rank
        try:
            if adapter.sharded:
                self._shard, self._measures, options = _enter_shard(options)
                if build is None:
                    raise ValueError("build = None: the model is sharded over ranks: pass a build that makes a plain model")
            self._start(adapter, build, losses, probe, calibration, curvature, dict(options))
        except BaseException as error:  # Ctrl-C, too
            self._refuse_shard(str(error))
            self.stop(0)
            if self._temporary:
                shutil.rmtree(self._temporary, ignore_errors=True)
            if strict or not isinstance(error, Exception):
                raise
            self._failure = str(error)
        if self._failure:
            self._refuse_shard(self._failure)
            self.step = _ignore
            if strict:
                self.stop()
                raise RuntimeError(self._failure)
            _log.error("nothing is measured: %s", self._failure)

    def _refuse_shard(self, why):
        """Tells the other ranks, which would wait."""
        if self._shard:
            _native.refuse_shard(self._shard, why)

    def _await_measurer(self, until):
        """Waits until the process of local rank 0 measures, as watch() does there."""
        while not self._native.measurer:
            self._failure = _native.shard_problem(self._shard)
            if self._failure:
                return
            if time.monotonic() >= until:
                _log.warning("the monitor of local rank 0 is not ready after %g s; training starts without it", self._settings["start_timeout"])
                break
            time.sleep(0.05)
        self.step = self._native.step

    def _start(self, adapter, build, losses, probe, calibration, curvature, options):
        if options.pop("copy_beside_training", None):
            _log.warning("copy_beside_training has no effect with mode='process'")
        try:
            os.getcwd()
        except OSError as error:
            raise RuntimeError(f"the working directory is gone ({error.strerror}): call os.chdir() before ptqwatch.watch()") from error
        self._on_alert = options.pop("on_alert", None)
        serve = options.pop("serve", None)
        if options.get("run_dir"):
            options["run_dir"] = os.path.abspath(options["run_dir"])
        rank, own_dir = _native.enter_rank(options)
        why = "" if self._shard else _native.why_another_serves(rank or 0)
        if serve and why:
            _log.info("no server beside this process: %s; only local rank 0 starts one", why)
            serve = None
        if serve and not own_dir:
            if rank is None:
                options["run_dir"] = own_dir = self._temporary = _native.make_served_directory()
            else:
                _log.error("no server beside this run: run_dir is None, and ranks are served from a directory that they share")
        options.setdefault("training_threads", torch.get_num_threads())
        # Pickled first: a mistake in a name costs nothing then.
        parts, needs_main = _package.pack(adapter.model, build, losses, adapter._structure, adapter._train_step,
                                          self._settings["cloudpickle"])
        self._native = _native.ProcessTrainer(adapter, options, self._settings["longest_silence"], self._shard)
        self._pin()
        if not self._measures:
            _monitors.add(self)
            self._await_measurer(time.monotonic() + self._settings["start_timeout"])
            return
        content = pickle.dumps({
            "surroundings": _package.surroundings(needs_main),
            "parts": parts,
            "batches": [_copied(batches) for batches in (probe, calibration, curvature)],
            "options": options,
            "named_optimizer": _named(adapter.optimizer()),
            "alarms": self._on_alert is not None,
        })
        self._start_worker(content, options.get("measuring_threads", 1))
        _monitors.add(self)
        if not self._await_ready(time.monotonic() + self._settings["start_timeout"]):
            worker = self._native.worker()
            if worker["over"]:
                raise RuntimeError(self._failure or f"the monitor's process ended ({worker['end']})")
            _log.warning("the monitor's process is not ready after %g s; training starts without it",
                         self._settings["start_timeout"])
        if not self._failure:
            # Without a call in between, which would double its time.
            self.step = self._native.step if self._on_alert is None else self._step_with_alarms
        if serve and own_dir:
            self._native.serve({"serve": serve}, own_dir, bool(self._temporary), rank is not None, 5.0)

    def _start_worker(self, content, threads):
        self._newest = _channel.Newest(os.memfd_create("ptqwatch-report", os.MFD_CLOEXEC))
        self._end, worker_end = _channel.pair()
        config = os.memfd_create("ptqwatch-config", os.MFD_CLOEXEC)
        os.truncate(config, len(content))
        with mmap.mmap(config, len(content)) as memory:
            memory[:] = content
        files = [self._native.file, self._native.wake, worker_end.fileno(), config, self._newest.file]
        with contextlib.suppress(OSError):
            trainer = os.pidfd_open(os.getpid())
            files.append(trainer)
        self._kept = [worker_end, *map(_Descriptor, files[3:])]  # a restarted worker gets the same ones
        path = os.pathsep.join(folder or os.getcwd() for folder in sys.path if isinstance(folder, str))  # others are ignored
        environment = {b"OMP_WAIT_POLICY": b"passive", **os.environb, b"PYTHONPATH": os.fsencode(path)}  # cores are for training
        environment |= dict.fromkeys((b"OMP_NUM_THREADS", b"MKL_NUM_THREADS"), str(threads).encode())
        # -P: the working directory is no place for modules, unless the trainer's path says so.
        arguments = [*_interpreter_flags(), "-P", "-m", "ptqwatch.worker", str(os.getpid())]
        self._native.start_worker(sys.executable, arguments, [name + b"=" + value for name, value in environment.items()], files,
                                  FAILED_STATUS, self._settings["first_pause"], self._settings["longest_pause"])

    def _pin(self):
        # So that copies from a GPU run at the bus's speed. Without it they are only slower.
        if torch.cuda.is_initialized():
            error = torch.cuda.cudart().cudaHostRegister(self._native.address, self._native.bytes, 0)
            self._pinned = int(error) == 0
            if not self._pinned:
                _log.info("the snapshots' memory is not pinned (CUDA error %d)", int(error))
                with contextlib.suppress(RuntimeError):  # CUDA keeps the error for the next kernel, which would be the trainer's
                    torch.ones((), device="cuda")

    def _drain(self):
        for message in _channel.receive(self._end):
            if "ready" in message:
                self._ready = message
                self._failure = message["failure"]
            elif "alarm" in message:
                self._alarms.append(message["alarm"])
            elif "answer" in message:
                self._answers[message["answer"]] = message
        newest = self._newest.read(self._version)
        if newest:
            self._version, self._report = newest[0], json.loads(newest[1])

    def _step_with_alarms(self, *arguments, **names):
        self._native.step(*arguments, **names)
        if self._native.alarms != self._alarms_seen:
            self._pass_on_alarms()

    def _pass_on_alarms(self):
        """Calls on_alert. Alarms reach the trainer's process only here, on the thread of step() or finish()."""
        self._refresh()
        while self._alarms:
            self._alarms_seen += 1
            try:
                self._on_alert(self._alarms.pop(0))
            except Exception:
                _log.exception("on_alert raised an exception")

    def _await_ready(self, until):
        """Waits until the running worker is ready or has failed. Returns whether it is ready."""
        while True:
            self._drain()
            worker = self._native.worker()
            if self._ready and self._ready["ready"] == worker["process"]:
                return True
            if worker["over"] or time.monotonic() >= until:
                self._drain()
                return False
            _channel.wait(self._end, min(0.05, max(0.0, until - time.monotonic())))

    def _ask(self, what, until, **arguments):
        """The worker's answer, or None if there is none before `until`, or the worker ends."""
        if not self._ready:
            return None
        self._number += 1
        number, worker = self._number, self._ready["ready"]
        if not _channel.send(self._end, {"do": what, "number": number, "worker": worker, **arguments}):
            return None
        try:
            while True:
                self._native.serve_finish()
                self._drain()
                if number in self._answers:
                    return self._answers.pop(number)
                if self._native.worker()["process"] != worker or time.monotonic() >= until:
                    return None
                _channel.wait(self._end, 0.005)
        except BaseException:
            _channel.send(self._end, {"do": "cancel", "number": number, "worker": worker})
            raise

    @property
    def _inert(self):
        return self._native is None or self._stopped or os.getpid() != self._pid

    def before_update(self):
        """Does nothing: the weights are copied inside `step`."""

    def finish(self, timeout=60.0):
        """Waits without the interpreter's lock. If the worker ends meanwhile, waits for the next one."""
        timeout = seconds("finish", timeout, 60.0)
        if self._inert or self._failure:
            reason = self._failure or "the monitor has stopped"
        else:
            deadline = time.monotonic() + timeout
            reason = self._finish(deadline) if self._measures else self._follow_finish(deadline)
            self._pass_on_alarms()
        if reason:
            _log.warning("not everything was measured: %s", reason)
        return not reason

    def _follow_finish(self, deadline):
        """Copies this rank's part if the process of another rank asks for it, until that has finished the last step."""
        alive = time.monotonic()
        while (reason := self._native.follow_finish()) is None:
            now = time.monotonic()
            process = self._native.measurer
            if process and os.path.exists(f"/proc/{process}"):
                alive = now
            if now >= deadline or now - alive > _LONGEST_ABSENCE:
                return "the monitor of local rank 0 " + ("did not finish in time" if process else "is not ready")
            time.sleep(0.005)
        return reason

    def _finish(self, deadline):
        reason = "the monitor's process is not ready"
        while self._await_ready(deadline) and not self._failure:
            left = max(0.0, deadline - time.monotonic())
            # The worker ends its own wait at the deadline and then answers.
            answer = self._ask("finish", deadline + 2, timeout=left)
            if answer is not None:
                self._drain()
                return answer["reason"]
            reason = f"the monitor's process ended or did not answer within {left:.3g} s"
            if time.monotonic() >= deadline:
                break
        return self._failure or reason

    def stop(self, timeout=2.0):
        """Ends the worker, which is killed after `timeout` seconds."""
        if self._inert:
            return True
        timeout = seconds("stop", timeout, 2.0)
        self._stopped = True
        self.step = _ignore
        self._native.withdraw()
        self._native.stop_server(0.2)
        asked = self._ready and _channel.send(
            self._end, {"do": "stop", "number": 0, "worker": self._ready["ready"], "timeout": 0.8 * timeout})
        if not self._measures:
            self._unpin()
            return True
        self._native.stop_worker(timeout if asked else 0)
        if self._end is not None:
            self._drain()
        self._unpin()
        in_time = self._native.worker()["end"] != "signal 9"
        if not in_time and asked:
            _log.warning("the monitor did not stop within %g s; its process was killed", timeout)
        return in_time or not asked

    def _unpin(self):
        if self._pinned:
            self._pinned = False
            torch.cuda.cudart().cudaHostUnregister(self._native.address)

    def describe(self):
        """As of the newest worker's start."""
        if self._failure or self._native is None:
            return f"nothing is measured: {self._failure}\n"
        if not self._measures:
            return f"this rank copies its part of the model; the monitor of local rank 0 measures, in {os.path.dirname(self._shard[1])}\n"
        self._refresh()
        return self._ready.get("description", "the monitor's process is not ready\n")

    def latest(self):
        """Never waits for the worker."""
        self._refresh()
        return self._report

    def status(self, timeout=5.0):
        """Asks the worker, for at most `timeout` seconds. The key `process` has `process`, the worker's process id (0: no worker);
        `restarts`; `end`, how the worker before it ended; `lost`, snapshots that ended with a worker. If the worker does not answer, its other counters are missing; `health` is
        there if nothing is measured.
        """
        status = {"health": "inert", "health_reason": self._failure} if self._failure else {}
        if self._native is None:
            return status
        worker = self._native.worker()
        answer = None if self._inert else self._ask("status", time.monotonic() + timeout)
        if answer is not None:
            status = answer["status"]
        return {**status, "process": {**worker, "lost": self._native.lost}, "server": self.served}

    @property
    def served(self):
        """The server beside the run."""
        return {"state": "none"} if self._native is None else self._native.served()

    @property
    def failure(self):
        """As Monitor.failure."""
        self._refresh()
        return self._failure or ("" if self._native is None else self._native.step_mistakes())

    def _refresh(self):
        if not self._inert and self._end is not None:
            self._drain()

    @contextlib.contextmanager
    def idle(self):
        """Tells the worker, without waiting for it. Of a sharded model, only what local rank 0 says counts: the others do nothing."""
        self._tell_idle(1)
        try:
            yield
        finally:
            self._tell_idle(-1)

    def _tell_idle(self, change):
        self._refresh()
        if not self._inert and self._ready:
            _channel.send(self._end, {"do": "idle", "number": 0, "worker": self._ready["ready"], "change": change})

    __enter__, __exit__ = Monitor.__enter__, Monitor.__exit__


class _Descriptor:
    """Closes a descriptor at its end."""

    def __init__(self, file):
        self.file = file

    def __del__(self):
        with contextlib.suppress(OSError):
            os.close(self.file)


def _settings(worker):
    if worker is not None and not isinstance(worker, dict):
        raise TypeError(f"worker = {worker!r}: must be a dict of {', '.join(_WORKER_DEFAULTS)}")
    for name, value in (worker or {}).items():
        if name not in _WORKER_DEFAULTS:
            raise TypeError(f"worker has no setting {name!r}; known: {', '.join(_WORKER_DEFAULTS)}")
        kind = bool if name == "cloudpickle" else (int, float)
        if not isinstance(value, kind) or (name != "cloudpickle" and not value >= 0):
            raise ValueError(f"worker[{name!r}] = {value!r}: must be {'a bool' if name == 'cloudpickle' else 'seconds, 0 or more'}")
    return {**_WORKER_DEFAULTS, **(worker or {})}


def _interpreter_flags():
    import subprocess

    return subprocess._args_from_interpreter_flags()  # as multiprocessing passes them on


def _ignore(step, lr, tokens=None, loss=None):
    pass


@atexit.register
def _end():
    for monitor in list(_monitors):
        monitor.stop()
