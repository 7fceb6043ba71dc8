"""Runs that have been watched."""

from __future__ import annotations

import json
import os
import typing

from ptqwatch import _native

if typing.TYPE_CHECKING:
    import pandas


@typing.overload
def read_run(run_dir: str | os.PathLike[str], *, layers: bool = ...,
             as_frame: typing.Literal[False] = ...) -> list[dict[str, typing.Any]]: ...
@typing.overload
def read_run(run_dir: str | os.PathLike[str], *, layers: bool = ..., as_frame: typing.Literal[True]) -> pandas.DataFrame: ...
def read_run(run_dir, *, layers=True, as_frame=False):
    """Reads the reports of a run, oldest first: one for each measured snapshot, with its verdict.

    The run may be over or go on. Its journal may be rotated, and the run directories of several ranks are merged.

    Args:
      run_dir: the run directory.
      layers: False leaves out the lists of layers, which are most of a report.
      as_frame: gives a pandas.DataFrame, with a row for each report and quantizer. Its columns are the report's fields
        and, after "quantization.", the quantizer's, with dots between nested names: "step", "probe_loss_nats",
        "curvature.trace", "verdict.state", "quantization.error_ratio". "quantizer" is the short name, "gptq3". Needs
        pandas.

    Returns:
      A list of dicts. Their keys are those of `ptqwatch history --json` (docs/run_directory.md). Losses are in nats per token, an
      error_ratio is the relative increase of the loss. In the lists of layers, numbers
      that are not integers have three significant digits. A value that was not measured is absent.

    Raises:
      FileNotFoundError: no run has begun in this directory.
      RuntimeError: its journal cannot be read.
    """
    reports = [json.loads(line) for line in _native.read_run(os.fspath(run_dir), layers)]
    return _frame_of(reports) if as_frame else reports


def _frame_of(reports: list[dict[str, typing.Any]]) -> pandas.DataFrame:
    import pandas

    rows = []
    for report in reports:
        for quantizer in report.pop("quantization", []):
            name = _native.short_name(quantizer["method"], quantizer["bits"], quantizer.get("format", ""))
            rows.append(report | {"quantizer": name, "quantization": quantizer})
    return pandas.json_normalize(rows)


def program() -> str | None:
    """The path of the program `ptqwatch`, which serves runs: PTQWATCH_PROGRAM, or that of this package's installation, or
    one on the PATH. None if there is none."""
    return _native.program()
