"""Run directories as Python values."""

import json
import sys
import types

import pytest

import ptqwatch
from conftest import ROOT

REPORTS = (ROOT / "tests/data/verdicts/decay.jsonl").read_text().splitlines()[:40]


@pytest.fixture
def run_dir(tmp_path):
    """A run whose journal was rotated after 15 of 40 reports, with an event and a line that a crash cut short."""
    lines = [json.dumps({"schema_version": 1, "attempt": 1, "snapshot_time_unix_seconds": 1.7e9 + 60 * i, **json.loads(line)})
             for i, line in enumerate(REPORTS)]
    event = json.dumps({"event": {"kind": "stopped", "severity": "info", "step": 1, "time_unix_seconds": 1.7e9, "message": "m"}})
    (tmp_path / "journal-000001.jsonl").write_text("\n".join(lines[:15]) + "\n")
    (tmp_path / "journal.jsonl").write_text("\n".join([*lines[15:], event]) + '\n{"run_id": "cut')
    return tmp_path


def test_reports_are_those_of_all_parts_oldest_first(run_dir):
    reports = ptqwatch.read_run(run_dir)
    wanted = [json.loads(line) for line in REPORTS]
    assert [report["sequence"] for report in reports] == list(range(1, 41))
    assert [report["probe_loss_nats"] for report in reports] == [report["probe_loss_nats"] for report in wanted]
    assert reports[3]["quantization"][2]["delta_nats"] == wanted[3]["quantization"][2]["delta_nats"]
    assert reports[0]["curvature"]["trace"] == wanted[0]["curvature"]["trace"]
    assert "verdict" in reports[0] and "event" not in reports[-1]


def test_layers_can_be_left_out(run_dir):
    line = json.loads((run_dir / "journal-000001.jsonl").read_text().splitlines()[0])
    line["quantization"][0]["layers"] = [{"name": "up.weight", "output_error_ratio": 0.1}]
    (run_dir / "journal-000001.jsonl").write_text(json.dumps(line) + "\n")
    layers_of = lambda **options: ptqwatch.read_run(run_dir, **options)[0]["quantization"][0].get("layers", [])
    assert [layer["name"] for layer in layers_of()] == ["up.weight"] and not layers_of(layers=False)


def test_a_frame_has_a_row_for_each_report_and_quantizer(run_dir):
    pytest.importorskip("pandas")
    frame = ptqwatch.read_run(run_dir, as_frame=True)
    assert len(frame) == 40 * 4 and list(frame["quantizer"][:4]) == ["rtn3", "rtn4", "gptq3", "gptq4"]
    first = json.loads(REPORTS[0])
    assert frame["quantization.delta_nats"][3] == first["quantization"][3]["delta_nats"]
    assert frame["curvature.trace"][3] == first["curvature"]["trace"]
    assert "verdict.state" in frame


def test_a_frame_is_what_pandas_makes_of_the_rows(run_dir, monkeypatch):
    rows = []
    monkeypatch.setitem(sys.modules, "pandas", types.SimpleNamespace(json_normalize=lambda records: rows.extend(records)))
    ptqwatch.read_run(run_dir, as_frame=True)
    assert len(rows) == 40 * 4 and [row["quantizer"] for row in rows[:4]] == ["rtn3", "rtn4", "gptq3", "gptq4"]
    assert rows[4]["sequence"] == 2 and rows[4]["quantization"]["method"] == "rtn"


def test_the_name_of_a_quantizer_of_a_later_version_is_its_method():
    from ptqwatch import _native

    assert _native.short_name("gptq", 4, "nvfp4") == "gptq-nvfp4" and _native.short_name("nf4", 4, "") == "nf4"
    assert _native.short_name("quip", 2, "e8") == "quip"


def test_no_run_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=str(tmp_path)):
        ptqwatch.read_run(tmp_path)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        ptqwatch.read_run("nowhere")
