"""The monitor that watch() returns."""

import atexit
import contextlib
import json
import logging
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ptqwatch import _native

_log = logging.getLogger("ptqwatch")
_monitors: "weakref.WeakSet[Monitor]" = weakref.WeakSet()


def seconds(call, timeout, default):
    """`timeout` as a number of seconds. What is none ends no training: it is logged, and `default` taken."""
    try:
        value = float(timeout)
        if value >= 0:
            return value
    except (TypeError, ValueError, OverflowError):
        pass
    _log.warning("%s(): timeout = %r is not a number of seconds, taking %g", call, timeout, default)
    return default


class Monitor:
    """Watches one model. watch() makes it.

    Training is not changed by a bit: the live model is only read, inside `step` and `finish`. After watch() nothing raises:
    failures are in the report, the run directory, `status()`, `failure` and the log. In a child of fork() the
    monitor does nothing; end it with os._exit(), as multiprocessing does, because sys.exit() can wait for a thread that only the
    parent has.

    As a context manager it finishes at the end of the block, or stops if the block raised.
    """

    def __init__(self, native):
        self._native = native
        self._report = {"sequence": 0}
        self.step = native.step  # without a call in between, which would double its time
        self.before_update = native.before_update
        _monitors.add(self)

    def step(self, step: int, lr: "float | torch.Tensor | Sequence[float] | None", tokens: int | None = None,
             loss: "float | torch.Tensor | None" = None) -> None:
        """Call after each optimizer step.

        `lr` is the rate as used for this step; of a list, such as scheduler.get_last_lr(), the largest counts. None: it is not
        known, and no alarm is raised for a decay. A tensor on a GPU is waited for at every step. `tokens` is the number of tokens
        (or samples) seen so far. `loss` is the training loss in nats; a tensor on a GPU is left out, because reading it would wait.

        Raises nothing: a wrong argument counts as not given, is logged once (logger "ptqwatch") and named by `failure`.

        Takes less than 2 us unless a snapshot is due; then the weights are copied, without the interpreter's lock.
        """

    def before_update(self) -> None:
        """With copy_beside_training, call before each optimizer step on the thread that steps (Monitor::BeforeUpdate)."""

    def finish(self, timeout: float = 60.0) -> bool:
        """Call when training is over. Measures the last step, and waits until all snapshots are measured, at most `timeout`
        seconds. Returns whether they are; if not, the reason goes to the log (logger "ptqwatch"). Ctrl-C ends the wait.
        """
        timeout = seconds("finish", timeout, 60.0)
        cancel = _native.CancelToken()
        reason = []
        stream = torch.cuda.current_stream() if torch.cuda.is_initialized() else None

        def wait():
            if stream:  # not as a context, which would end on device 0 and claim memory there
                torch.cuda.set_device(stream.device)
                torch.cuda.set_stream(stream)
            reason.append(self._native.finish(timeout, cancel))

        thread = threading.Thread(target=wait, name="ptqwatch-finish", daemon=True)
        thread.start()
        try:
            thread.join()
        except BaseException:
            cancel.cancel()
            thread.join()
            raise
        if reason[0]:
            _log.warning("not everything was measured: %s", reason[0])
        return not reason[0]

    def stop(self, timeout: float = 2.0) -> bool:
        """Ends the monitor, without waiting for measurements. A losses function that still runs after half of `timeout` seconds
        is ended by SystemExit. Returns whether the monitor ended in time. May be called again.
        """
        reason = self._native.stop(seconds("stop", timeout, 2.0))
        if reason:
            _log.warning("the monitor did not stop: %s", reason)
        return not reason

    def describe(self) -> str:
        """The planned measurements as text: layers covered, layers left out and why, bytes, estimated seconds."""
        return self._native.describe()

    def latest(self) -> dict[str, Any] | None:
        """The newest report, with the keys of a journal line, or None. The same object until there is another one."""
        if self._native.sequence() != self._report["sequence"]:
            newest = self._native.latest()
            self._report = json.loads(newest) if newest else {"sequence": 0}  # none in a child of fork()
        return self._report if self._report["sequence"] else None

    def status(self) -> dict[str, Any]:
        """Current counters and gauges (MonitorStatus, with its names as keys)."""
        return json.loads(self._native.status())["status"]

    @property
    def served(self) -> dict[str, Any]:
        """The server beside the run: `state`, and its addresses `metrics` and `grpc` while it serves."""
        return self.status()["server"]

    @property
    def failure(self) -> str:
        """Why nothing is measured, or which arguments of `step` were wrong; otherwise empty."""
        return self._native.failure()

    @contextlib.contextmanager
    def idle(self):
        """While this block runs, the trainer does not train: the monitor works at full speed, and this is not charged to its
        share. Several may exist at once.
        """
        scope = self._native.idle()
        try:
            yield
        finally:
            scope.end()

    def __enter__(self) -> "Monitor":
        return self

    def __exit__(self, kind, value, traceback) -> None:
        if kind is None:
            self.finish()
        self.stop()


@atexit.register
def _end() -> None:
    # Before the interpreter ends, because a thread that then asks for its lock is ended inside functions that may not throw.
    try:
        for monitor in list(_monitors):
            monitor.stop()
    finally:  # also after a second Ctrl-C
        _native.end_python()
