"""watch(), the door of trainers."""

import logging
import os
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ptqwatch import _native
from ptqwatch._batches import flatten
from ptqwatch._monitor import Monitor
from ptqwatch._optimizer import kind_of, unwrap
from ptqwatch._process import ProcessMonitor, refuse_on_all_ranks
from ptqwatch._subject import ModelAdapter

_log = logging.getLogger("ptqwatch")


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
