"""The package itself: the versions of PyTorch that it refuses, its types, its notebook."""

import ast
import inspect
import json
import os
import pathlib
import re
import subprocess
import sys
import types
from unittest import mock

import pytest

import ptqwatch
from ptqwatch import _build
from conftest import ROOT


def import_with(folder):
    """Imports the package with `folder` in front of all others; returns the last line of the error."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run([sys.executable, "-c", "import ptqwatch"], env=environment, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    return done.stderr.strip().splitlines()[-1]


BUILT_WITH = ".".join(_build.TORCH.split(".")[:2])


@pytest.mark.parametrize("version", ["2.7.1", "2.99.0+cu130", "1.13.0"])
def test_another_torch_is_refused_with_both_versions_named(tmp_path, version):
    (tmp_path / "torch.py").write_text(f"__version__ = {version!r}\n")
    assert import_with(tmp_path) == (
        f"ImportError: ptqwatch {ptqwatch.__version__} was built with torch {_build.TORCH}, but torch {version} is imported: pip install "
        f"'torch=={BUILT_WITH}.*', or install ptqwatch again beside the torch that you use")


def test_a_missing_torch_is_named(tmp_path):
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')\n")
    assert f"and there is no torch: pip install 'torch=={BUILT_WITH}.*'" in import_with(tmp_path)


def test_a_torch_that_is_broken_says_so_itself(tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('libcudart.so.13: cannot open')\n")
    assert import_with(tmp_path) == "ImportError: libcudart.so.13: cannot open"


def test_the_public_names_are_documented_and_typed():
    folder = pathlib.Path(ptqwatch.__file__).parent
    assert (folder / "py.typed").exists() and (folder / "_native.pyi").exists()
    for name in ptqwatch.__all__:
        value = getattr(ptqwatch, name)
        if name == "Gram":  # of the compiled part
            continue
        assert inspect.getdoc(value), name
        if inspect.isfunction(value) and name in ("quantize", "quantize_model", "curvature", "gram", "read_run"):
            signature = inspect.signature(value)
            untyped = [key for key, parameter in signature.parameters.items() if parameter.annotation is inspect.Parameter.empty]
            assert name == "read_run" or not untyped, (name, untyped)


def test_the_stub_names_the_functions_of_the_compiled_part():
    from ptqwatch import _native

    stub = ast.parse((pathlib.Path(ptqwatch.__file__).parent / "_native.pyi").read_text())
    names = {node.name for node in stub.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))} - {"__getattr__"}
    assert names and all(hasattr(_native, name) for name in names)


def test_the_program_is_that_of_the_environment(tmp_path, monkeypatch):
    program = tmp_path / "ptqwatch"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PTQWATCH_PROGRAM", str(program))
    assert ptqwatch._program() == str(program)
    program.chmod(0o777)  # others may write it
    assert ptqwatch._program() is None


def test_the_notebook_draws_a_run(tmp_path, monkeypatch):
    notebook = json.loads((ROOT / "examples/python/read_run.ipynb").read_text())
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert cells and not any(cell.get("outputs") or cell.get("execution_count") for cell in notebook["cells"])
    run_dir = re.search(r'"PTQWATCH_RUN_DIR", "(.*)"', cells[0])[1]
    assert (ROOT / "examples/python" / run_dir).resolve() == ROOT / "runs/minimal"  # Jupyter works in the notebook's folder
    lines = (ROOT / "tests/data/verdicts/decay.jsonl").read_text().splitlines()[:40]
    reports = [{"schema_version": 1, "attempt": 1, "snapshot_time_unix_seconds": 1.7e9, **json.loads(line)} for line in lines]
    for report in reports:
        for quantizer in report["quantization"]:
            quantizer["error_ratio"] = quantizer["delta_nats"] / report["probe_loss_nats"]
    (tmp_path / "journal.jsonl").write_text("\n".join(map(json.dumps, reports)) + "\n")
    monkeypatch.setenv("PTQWATCH_RUN_DIR", str(tmp_path))
    axes = [mock.MagicMock() for _ in range(3)]
    plots = types.SimpleNamespace(subplots=lambda *_, **__: (mock.MagicMock(), axes), show=lambda: None)
    monkeypatch.setitem(sys.modules, "matplotlib", types.SimpleNamespace(pyplot=plots))
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", plots)
    names = {}
    for cell in cells:
        exec(compile(cell, "read_run.ipynb", "exec"), names)
    errors = {call.kwargs["label"]: call.args for call in axes[0].plot.call_args_list}
    assert set(errors) == {"rtn3", "rtn4", "gptq3", "gptq4"}
    steps, values = errors["gptq3"]
    assert list(steps) == [report["step"] for report in reports]
    assert list(values) == [100 * report["quantization"][2]["error_ratio"] for report in reports]
    traces = axes[1].plot.call_args_list[0].args[1]
    assert list(traces) == [report["curvature"]["trace"] for report in reports]
