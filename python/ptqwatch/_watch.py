"""watch() and the monitor that it returns."""

import atexit
import contextlib
import json
import logging
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ptqwatch import _native
from ptqwatch._batches import flatten
from ptqwatch._optimizer import kind_of, unwrap
from ptqwatch._subject import ModelAdapter

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


def watch(
    model: torch.nn.Module,
    *,
    losses: str | Callable,
    probe: Sequence,
    build: str | Callable[[], torch.nn.Module] | None = None,
    calibration: Sequence | None = None,
    curvature_batches: Sequence | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    train_step: Callable | None = None,
    every: int = 1000,
    run_dir: "str | os.PathLike | None" = None,
    serve: bool | dict[str, Any] = False,
    mode: str = "process",
    worker: dict[str, Any] | None = None,
    **options: Any,
) -> Monitor:
    """Watches how much quantization would cost `model` while it trains. Call it once, before the first step.

    model              the module that is trained; DistributedDataParallel and torch.compile are looked through. With several
                       ranks of equal weights (torchrun), call watch() on every one, with the same run_dir: they share the
                       measurements. To watch on one alone, pass ranks_from_environment=False there.
    losses(model, batch)
                       returns losses in nats: one for each sequence and token [N, T], for each sequence [N], or a mean []; or
                       (losses, weights) of the same shape; or a dict of `values`, `weights`, `logits`, `correct`. Gets the
                       replica in evaluation mode; must not write to it or draw from a global generator. A callable or
                       "module:function"; "ptqwatch.losses:causal_lm" suits causal language models.
    probe              held-out batches for comparing losses: a list of tensors, or of tuples, lists or dicts of tensors, all
                       arranged in one way. Dimension 0 counts sequences.
    build()            makes a model of the same architecture, whose weights are overwritten. In thread mode, None copies `model`.
    calibration        batches for calibrating quantizers; None: those of `probe`.
    curvature_batches  batches for curvature; None: the first 64 sequences of `probe`.
    optimizer          torch.optim.AdamW, Adam or SGD of `model`, for the distance to the edge of stability. Of Muon, the run's
                       information has the name.
    train_step(replica, step)
                       one optimizer step of the replica on a batch of its own, for cooldowns (CooldownStep). A callable or
                       "module:function".
    every              snapshots are due at steps divisible by this.
    run_dir            keeps the journal; None: no files.
    serve              True, or a dict of ServeOptions' fields: starts `ptqwatch serve` beside the run.
    mode               "process": the monitor runs in a process of its own. "thread": on a thread of this process.
    worker             settings of that process (ProcessMonitor).
    options            fields of MonitorOptions (ptqwatch/options.h) by name, nested ones as dicts: quantizers="rtn3,gptq4",
                       max_overhead=0.02, curvature={"enabled": False}, schedule={"log_spaced_per_decade": 4}, ... Durations are
                       seconds. on_alert(report) is called on the monitor's thread; with mode="process", inside step() or
                       finish(), on their thread.

    TypeError and ValueError name an argument or option that is unknown or of the wrong type, and its value. Any other mistake
    gives a monitor that measures nothing and says why (`failure`), so that training goes on; with on_failure="error" it is a
    ValueError or RuntimeError.
    """
    if mode not in ("process", "thread"):
        raise ValueError(f"mode = {mode!r}: must be 'process' or 'thread'")
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model is of type {type(model).__name__}; it must be a torch.nn.Module")
    batches, structure = flatten(probe, "probe")
    calibration, _ = flatten([] if calibration is None else calibration, "calibration", structure)
    curvature_batches, _ = flatten([] if curvature_batches is None else curvature_batches, "curvature_batches", structure)
    options = _monitor_options(options, every, run_dir, serve)
    rule = None if optimizer is None else unwrap(optimizer)
    if rule is not None and not hasattr(rule, "param_groups"):
        raise TypeError(f"optimizer is of type {type(rule).__name__}; it must be a torch.optim.Optimizer")
    adapter = ModelAdapter(model, build, losses, structure, optimizer, train_step)
    if rule is not None and kind_of(rule) is None:
        _log.warning("reports have no distance to the edge of stability: there is no formula for %s", type(rule).__name__)
    if mode == "thread" and adapter.sharded:
        adapter.refusal = adapter.refusal or "the model is sharded over ranks; watch it with mode='process', and call watch() on every rank"
    if mode == "process" and (adapter.sharded or not adapter.refusal):
        from ptqwatch._process import ProcessMonitor, refuse_on_all_ranks

        if not adapter.refusal:
            return ProcessMonitor(adapter, build, losses, batches, calibration, curvature_batches, options, worker)
        options = refuse_on_all_ranks(adapter.refusal, options)
    native = _native.Monitor(adapter, batches, calibration, curvature_batches, options)
    adapter.created()
    return Monitor(native)


def _monitor_options(options, every, run_dir, serve):
    """MonitorOptions as a dict, with the named arguments of watch(). Checked for names and types."""
    options = dict(options)
    schedule = options.get("schedule", {})
    if isinstance(schedule, dict):
        options["schedule"] = {"every": every, **schedule}
    if run_dir is not None:
        options["run_dir"] = run_dir
    if serve is not False:
        options["serve"] = serve
    _native.check_options(options)
    if serve is not False and serve is not None:
        from ptqwatch import _program

        program = _program()
        options["serve"] = {**({"program": program} if program else {}), **(serve if isinstance(serve, dict) else {})}
    return options


@atexit.register
def _end() -> None:
    # Before the interpreter ends, because a thread that then asks for its lock is ended inside functions that may not throw.
    try:
        for monitor in list(_monitors):
            monitor.stop()
    finally:  # also after a second Ctrl-C
        _native.end_python()
